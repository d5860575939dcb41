package alerting

import (
	"cmp"
	"context"
	"slices"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

type previewRequest struct {
	_     struct{}     `additionalProperties:"true"`
	Rules []ruleChange `json:"rules" nullable:"false" minItems:"1" maxItems:"50" doc:"Rules to try."`
	Days  int          `json:"days" minimum:"1" maximum:"92" doc:"How many days of the past." example:"30"`
}

type previewDay struct {
	Date      string `json:"date" format:"date" doc:"Day of the begin, UTC." example:"2026-03-01"`
	Incidents int    `json:"incidents" doc:"Incidents that began on it." example:"2"`
}

type previewSensor struct {
	SensorID  string       `json:"sensor_id" doc:"Identifier of the sensor." example:"esp32-7f3a"`
	Incidents int          `json:"incidents" doc:"Incidents of all days." example:"5"`
	Days      []previewDay `json:"days" nullable:"false" doc:"Days with incidents, oldest first."`
}

func (h *Handlers) preview(ctx context.Context, in *rest.Body[previewRequest]) ([]previewSensor, error) {
	customer := auth.Caller(ctx)
	rules := make([]incident.Rule, len(in.Body.Rules))
	for i := range in.Body.Rules {
		rules[i] = in.Body.Rules[i].rule()
		rules[i].ID = int64(i)
	}
	if err := h.checkScopes(ctx, customer, rules); err != nil {
		return nil, err
	}
	judging, err := h.judging(ctx, customer, rules)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(judging))
	for id := range judging {
		ids = append(ids, id)
	}
	nodes, err := accounts.New(h.DB).VisibleNodes(ctx, customer, ids)
	if err != nil {
		return nil, err
	}
	p := previews{judging: judging, found: map[string]map[string]int{}}
	end := h.Clock()
	if len(nodes) > 0 {
		for r, err := range h.Readings.Ranges(ctx, nodes, end.AddDate(0, 0, -in.Body.Days), end) {
			if err != nil {
				return nil, err
			}
			p.add(r)
		}
	}
	p.finish()
	return p.answer(), nil
}

// checkScopes returns an error for a room or sensor that is not the customer's.
func (h *Handlers) checkScopes(ctx context.Context, customer int64, rules []incident.Rule) error {
	checked := map[incident.Scope]bool{{}: true}
	for _, r := range rules {
		if checked[r.Scope] {
			continue
		}
		checked[r.Scope] = true
		var err error
		if r.Scope.RoomID != 0 {
			_, err = accounts.New(h.DB).Room(ctx, customer, r.Scope.RoomID)
		} else {
			_, err = accounts.New(h.DB).Sensor(ctx, customer, r.Scope.SensorID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judging returns the rules that would judge each of the customer's sensors that any
// of them would.
func (h *Handlers) judging(ctx context.Context, customer int64, rules []incident.Rule) (map[string][]incident.Rule, error) {
	sensors, err := incidents.New(h.DB).LiveSensors(ctx, customer)
	if err != nil {
		return nil, err
	}
	judging := map[string][]incident.Rule{}
	for _, s := range sensors {
		if effective := incident.Effective(rules, s.RoomID, s.NodeID); len(effective) > 0 {
			judging[s.NodeID] = effective
		}
	}
	return judging, nil
}

// previews counts incidents of readings that come node after node. It holds those of
// one node.
type previews struct {
	judging map[string][]incident.Rule
	found   map[string]map[string]int // by sensor and day
	node    reading.Node
	points  []incident.Point
}

func (p *previews) add(r reading.Reading) {
	if r.Node() != p.node {
		p.finish()
		p.node = r.Node()
	}
	p.points = append(p.points, incident.Point{Time: r.Time, Temperature: r.Temperature, Humidity: r.Humidity})
}

func (p *previews) finish() {
	for _, rule := range p.judging[p.node.ID] {
		for _, i := range rule.Preview(p.points) {
			days := p.found[p.node.ID]
			if days == nil {
				days = map[string]int{}
				p.found[p.node.ID] = days
			}
			days[i.Start.UTC().Format(time.DateOnly)]++
		}
	}
	p.points = p.points[:0]
}

func (p *previews) answer() []previewSensor {
	answer := []previewSensor{}
	for sensor, days := range p.found {
		s := previewSensor{SensorID: sensor}
		for date, incidents := range days {
			s.Days = append(s.Days, previewDay{Date: date, Incidents: incidents})
			s.Incidents += incidents
		}
		slices.SortFunc(s.Days, func(a, b previewDay) int { return cmp.Compare(a.Date, b.Date) })
		answer = append(answer, s)
	}
	slices.SortFunc(answer, func(a, b previewSensor) int { return cmp.Compare(a.SensorID, b.SensorID) })
	return answer
}
