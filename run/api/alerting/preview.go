package alerting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

type previewRequest struct {
	_        struct{}     `additionalProperties:"true"`
	Rules    []RuleChange `json:"rules" nullable:"false" minItems:"1" maxItems:"50" doc:"Rules to try."`
	Replaces int64        `json:"replaces,omitempty" doc:"Identifier of the account's rule that the first one replaces." example:"12"`
	Days     int          `json:"days" minimum:"1" maximum:"92" doc:"How many days of the past." example:"30"`
}

type previewDay struct {
	Date       string `json:"date" format:"date" doc:"UTC." example:"2026-03-01"`
	Incidents  int    `json:"incidents" doc:"Incidents that began on it." example:"1"`
	Excursions int    `json:"excursions" doc:"Excursions that began on it." example:"12"`
}

type previewSensor struct {
	SensorID   string `json:"sensor_id" doc:"Identifier of the sensor." example:"esp32-7f3a"`
	Excursions int    `json:"excursions" doc:"Excursions of all days." example:"5"`
}

type previewRoom struct {
	RoomID     int64           `json:"room_id" doc:"Identifier of the room." example:"3"`
	RoomName   string          `json:"room_name" doc:"Name of the room." example:"Main hall"`
	Incidents  int             `json:"incidents" doc:"Incidents of all days." example:"2"`
	Excursions int             `json:"excursions" doc:"Excursions of all days." example:"14"`
	Days       []previewDay    `json:"days" nullable:"false" doc:"All days, oldest first."`
	Sensors    []previewSensor `json:"sensors" nullable:"false" doc:"Sensors with excursions, those with most first."`
}

type preview struct {
	Incidents  int           `json:"incidents" doc:"Incidents of all rooms." example:"2"`
	Excursions int           `json:"excursions" doc:"Excursions of all rooms." example:"14"`
	Rooms      []previewRoom `json:"rooms" nullable:"false" doc:"Rooms with excursions, those with most incidents first."`
}

var errSlowPreview = rest.NewError(http.StatusServiceUnavailable, "The preview takes too long; choose fewer days, or rules for fewer sensors")

func (h *Handlers) preview(ctx context.Context, in *rest.Body[previewRequest]) (_ preview, err error) {
	defer func() {
		if err != nil && !errors.Is(err, fairqueue.ErrNoSlot) && errors.Is(cmp.Or(ctx.Err(), err), context.DeadlineExceeded) {
			err = errSlowPreview
		}
	}()
	customer := auth.Caller(ctx)
	rules := make([]incident.Rule, len(in.Body.Rules))
	for i := range in.Body.Rules {
		rules[i] = in.Body.Rules[i].rule()
		rules[i].ID = int64(i)
	}
	if err := h.checkScopes(ctx, customer, rules); err != nil {
		return preview{}, err
	}
	existing, err := incidents.New(h.DB).Rules(ctx, customer)
	if err != nil {
		return preview{}, err
	}
	for _, r := range existing {
		if r.ID == in.Body.Replaces {
			rules[0].Threshold = r.Threshold // no narrower rule goes before it
			continue
		}
		r.ID = existingRule
		rules = append(rules, r)
	}
	judging, err := h.judging(ctx, customer, rules)
	if err != nil {
		return preview{}, err
	}
	nodes, err := accounts.New(h.DB).VisibleNodes(ctx, customer, slices.Collect(maps.Keys(judging)))
	if err != nil {
		return preview{}, err
	}
	done, err := h.previews.Wait(ctx)
	if err != nil {
		return preview{}, err
	}
	defer done()
	p := previews{judging: judging, found: map[int64][]incident.Part{}}
	end := h.Clock()
	start := end.AddDate(0, 0, -in.Body.Days)
	if len(nodes) > 0 {
		for r, err := range h.Readings.Ranges(ctx, nodes, start, end) {
			if err != nil {
				return preview{}, err
			}
			if err := p.add(ctx, r); err != nil {
				return preview{}, err
			}
		}
	}
	if err := p.finish(ctx); err != nil {
		return preview{}, err
	}
	if len(p.found) == 0 {
		return preview{Rooms: []previewRoom{}}, nil
	}
	rooms, err := accounts.New(h.DB).Rooms(ctx, customer)
	if err != nil {
		return preview{}, err
	}
	return p.answer(rooms, start, end), nil
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

// judgedSensor is a sensor's room, and the rules that would judge it.
type judgedSensor struct {
	room  int64
	rules []incident.Rule
}

// existingRule is the id in a preview of all rules that there are: the narrower ones go before those tried.
const existingRule = -1

// judging returns the customer's sensors that any of the rules tried would judge.
func (h *Handlers) judging(ctx context.Context, customer int64, rules []incident.Rule) (map[string]judgedSensor, error) {
	sensors, err := incidents.New(h.DB).LiveSensors(ctx, customer)
	if err != nil {
		return nil, err
	}
	judging := map[string]judgedSensor{}
	for _, s := range sensors {
		effective := slices.DeleteFunc(incident.Effective(rules, s.RoomID, s.NodeID), func(r incident.Rule) bool { return r.ID == existingRule })
		if len(effective) > 0 {
			judging[s.NodeID] = judgedSensor{s.RoomID, effective}
		}
	}
	return judging, nil
}

// previews finds the excursions in readings that come node after node. It holds the readings
// of one node, and the excursions of all, which are few.
type previews struct {
	judging map[string]judgedSensor
	found   map[int64][]incident.Part // by room
	node    reading.Node
	points  []incident.Point
}

func (p *previews) add(ctx context.Context, r reading.Reading) (err error) {
	if r.Node() != p.node {
		err = p.finish(ctx)
		p.node = r.Node()
	}
	p.points = append(p.points, incident.Point{Time: r.Time, Temperature: r.Temperature, Humidity: r.Humidity})
	return err
}

func (p *previews) finish(ctx context.Context) error {
	sensor := p.judging[p.node.ID]
	for _, rule := range sensor.rules {
		if err := ctx.Err(); err != nil { // nobody waits for the answer any more
			return fmt.Errorf("preview: %w", err)
		}
		for _, i := range rule.Preview(p.points) {
			i.ID = int64(len(p.found[sensor.room]))
			p.found[sensor.room] = append(p.found[sensor.room], rule.Part(p.node.ID, i))
		}
	}
	p.points = p.points[:0]
	return nil
}

func (p *previews) answer(rooms []accounts.Room, start, end time.Time) preview {
	answer := preview{Rooms: []previewRoom{}}
	for _, room := range rooms {
		parts := p.found[room.ID]
		if len(parts) == 0 {
			continue
		}
		r := previewOf(parts, start, end)
		r.RoomID, r.RoomName = room.ID, room.Name
		answer.Incidents += r.Incidents
		answer.Excursions += r.Excursions
		answer.Rooms = append(answer.Rooms, r)
	}
	slices.SortStableFunc(answer.Rooms, func(a, b previewRoom) int {
		return cmp.Or(cmp.Compare(b.Incidents, a.Incidents), cmp.Compare(b.Excursions, a.Excursions))
	})
	return answer
}

func previewOf(parts []incident.Part, start, end time.Time) previewRoom {
	const day = 24 * time.Hour
	first := start.Truncate(day)
	room := previewRoom{Excursions: len(parts), Days: make([]previewDay, 1+end.Sub(first)/day)}
	for i := range room.Days {
		room.Days[i].Date = first.AddDate(0, 0, i).UTC().Format(time.DateOnly)
	}
	sensors := map[string]int{}
	for _, g := range incident.Gather(parts) {
		room.Incidents++
		room.Days[g.Start().Sub(first)/day].Incidents++
		for _, part := range g.Parts {
			room.Days[part.Start.Sub(first)/day].Excursions++
			sensors[part.Node]++
		}
	}
	for id, excursions := range sensors {
		room.Sensors = append(room.Sensors, previewSensor{id, excursions})
	}
	slices.SortFunc(room.Sensors, func(a, b previewSensor) int {
		return cmp.Or(cmp.Compare(b.Excursions, a.Excursions), cmp.Compare(a.SensorID, b.SensorID))
	})
	return room
}
