package alerting

import (
	"context"
	"slices"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store/incidents"
)

// OpenIncident is an incident in short, as the overview has those that last.
type OpenIncident struct {
	ID           string    `json:"id" doc:"Identifier of the incident." example:"41"`
	GroupID      string    `json:"group_id" doc:"The same for incidents of one room and kind that overlap: the id of the first of them." example:"41"`
	Kind         string    `json:"kind" enum:"threshold,silence,anomaly,forecast" doc:"threshold: a value beyond the limit of a rule, of whatever quantity; silence: no readings; anomaly: readings unlike the others; forecast: a limit will be passed." example:"threshold"`
	Severity     string    `json:"severity" enum:"warning,critical" doc:"How urgent it is." example:"critical"`
	SensorID     string    `json:"sensor_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SensorName   *string   `json:"sensor_name" doc:"Name of the sensor when it began; null for a node that is no sensor yet." example:"Rack 3"`
	RoomID       *int64    `json:"room_id" doc:"Room of the sensor when it began; null for a node that is no sensor yet." example:"3"`
	GatewayID    *string   `json:"gateway_id" doc:"Enrolled gateway that its readings came through; null for others." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	StartTime    rest.Time `json:"start_time" doc:"First reading beyond the limit, or since when the sensor counts as silent, UTC." example:"2026-03-01T12:00:00Z"`
	Acknowledged bool      `json:"acknowledged" doc:"Whether somebody has seen to it." example:"false"`
	Silenced     bool      `json:"silenced" doc:"Whether a maintenance window covers it: now while it lasts, else its begin and its end." example:"false"`
	Late         bool      `json:"late" doc:"Whether all its readings came 10 minutes late or more: nobody is notified." example:"false"`
	Reason       string    `json:"reason" doc:"What it is, in words." example:"Temperature above 50.0 °C for 12 min, peak 55.1 °C"`
}

// Open lists all of the caller's lasting incidents in short form, newest first. toBeSeen
// counts the groups of incidents that nobody has acknowledged, ended ones included, silenced
// ones not.
func (h *Handlers) Open(ctx context.Context) (lasting []OpenIncident, toBeSeen int, err error) {
	customer, now := auth.Caller(ctx), h.Clock()
	open, err := incidents.New(h.DB).OpenIncidents(ctx, customer)
	if err != nil {
		return nil, 0, err
	}
	silent, err := silences(ctx, h.DB, customer, now)
	if err != nil {
		return nil, 0, err
	}
	all := rest.List(open, excursionOf)
	for _, s := range silent {
		all = append(all, s.incident(now))
	}
	slices.SortStableFunc(all, func(a, b Excursion) int { return b.StartTime.Compare(a.StartTime.Time) })
	if err := h.markSilenced(ctx, customer, all); err != nil {
		return nil, 0, err
	}
	lasting, unseen := []OpenIncident{}, map[string]bool{} // groups
	for _, i := range all {
		if !i.Acknowledged && !i.Silenced {
			unseen[i.GroupID] = true
		}
		if i.EndTime == nil {
			lasting = append(lasting, i.OpenIncident)
		}
	}
	return lasting, len(unseen), nil
}

// State says whether somebody still has to see to an incident that lasts.
type State string

// The states. Nobody is notified of a late incident, acknowledged or not. One that was
// acknowledged is silenced while a maintenance window covers it.
const (
	StateLate     State = "late"
	StateOpen     State = "open"
	StateTaken    State = "taken"
	StateSilenced State = "silenced"
)

// Lasting is what the caller's lasting incidents are counted by.
type Lasting struct {
	Kind, Severity, RoomName string
	State                    State
}

// CountLasting counts the caller's incidents that last. Silences are among them: a
// gateway's counts once in each room of its nodes, and is open there while one of these
// nodes is.
func (h *Handlers) CountLasting(ctx context.Context) (map[Lasting]int, error) {
	customer, now := auth.Caller(ctx), h.Clock()
	windows, err := incidents.New(h.DB).MaintenanceWindows(ctx, customer, now)
	if err != nil {
		return nil, err
	}
	state := func(room int64, node string, acknowledged bool) State {
		switch {
		case covers(windows, room, node, now):
			return StateSilenced
		case acknowledged:
			return StateTaken
		default:
			return StateOpen
		}
	}
	counts := map[Lasting]int{} // two rooms may have one name
	found, err := incidents.New(h.DB).LastingIncidents(ctx, customer)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		one := Lasting{i.Kind, i.Severity, i.RoomName, StateLate}
		if !i.Late {
			one.State = state(i.RoomID, i.NodeID, i.Acknowledged)
		}
		counts[one]++
	}
	silent, err := silences(ctx, h.DB, customer, now)
	if err != nil {
		return nil, err
	}
	for _, s := range silent {
		one, rooms := s.incident(now), map[int64]Lasting{}
		for _, n := range s.nodes {
			here := Lasting{one.Kind, one.Severity, n.RoomName, state(n.RoomID, n.NodeID, n.AcknowledgedAt != nil)}
			if other, ok := rooms[n.RoomID]; !ok || here.State == StateOpen || other.State == StateSilenced {
				rooms[n.RoomID] = here
			}
		}
		for _, here := range rooms {
			counts[here]++
		}
	}
	return counts, nil
}
