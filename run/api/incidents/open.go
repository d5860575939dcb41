package incidents

import (
	"context"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
)

// OpenIncident is an open incident in short.
type OpenIncident struct {
	ID           string    `json:"id" doc:"Identifier of the incident." example:"41"`
	GroupID      string    `json:"group_id" doc:"The same for incidents of one room and kind that overlap." example:"41"`
	Kind         string    `json:"kind" enum:"threshold,silence,anomaly,forecast" doc:"What kind it is." example:"threshold"`
	Severity     string    `json:"severity" enum:"warning,critical" doc:"How urgent it is." example:"critical"`
	Lasting      bool      `json:"lasting" doc:"Whether it lasts; else it has ended and nobody has acknowledged it." example:"true"`
	SensorID     string    `json:"sensor_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SensorName   *string   `json:"sensor_name" doc:"Name of the sensor when it began; null for a node that is no sensor yet." example:"Rack 3"`
	RoomID       *int64    `json:"room_id" doc:"Room of the sensor when it began; null for a node that is no sensor yet." example:"3"`
	GatewayID    *string   `json:"gateway_id" doc:"Enrolled gateway that its readings came through; null for others." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	StartTime    time.Time `json:"start_time" doc:"Since when, UTC." example:"2026-03-01T12:00:00Z"`
	Acknowledged bool      `json:"acknowledged" doc:"Whether somebody has seen to it." example:"false"`
	Silenced     bool      `json:"silenced" doc:"Whether a maintenance window covers it." example:"false"`
	Late         bool      `json:"late" doc:"Whether all its readings came 10 minutes late or more: nobody is notified." example:"false"`
	Reason       string    `json:"reason" doc:"What it is, in words." example:"Temperature above 50.0 °C for 12 min, peak 55.1 °C"`
}

// Open lists the caller's open incidents in short, newest first, at most so many.
func (h *Handlers) Open(ctx context.Context, limit int) ([]OpenIncident, error) {
	found, err := h.find(ctx, &listInput{State: string(store.IncidentsOpen), Limit: limit})
	return rest.List(found, func(i Incident) OpenIncident {
		return OpenIncident{
			ID: i.ID, GroupID: i.GroupID, Kind: i.Kind, Severity: i.Severity, Lasting: i.EndTime == nil, SensorID: i.SensorID,
			SensorName: i.SensorName, RoomID: i.RoomID, GatewayID: i.GatewayID, StartTime: i.StartTime,
			Acknowledged: i.Acknowledged, Silenced: i.Silenced, Late: i.Late, Reason: i.Reason,
		}
	}), err
}

// Lasting counts the caller's incidents that last, by kind, severity and room: silences,
// too, a gateway's once in each room of its nodes.
func (h *Handlers) Lasting(ctx context.Context) ([]store.IncidentCount, error) {
	counts, err := h.Store.LastingIncidents(ctx, auth.Caller(ctx))
	if err != nil {
		return nil, err
	}
	now := h.Clock()
	silent, err := silences(ctx, h.Store, auth.Caller(ctx), now)
	if err != nil {
		return nil, err
	}
	for _, s := range silent {
		one, counted := s.incident(now), map[int64]bool{}
		for _, n := range s.nodes {
			if !counted[n.RoomID] {
				counted[n.RoomID] = true
				counts = append(counts, store.IncidentCount{Kind: one.Kind, Severity: one.Severity, RoomName: n.RoomName, Incidents: 1})
			}
		}
	}
	return counts, nil
}
