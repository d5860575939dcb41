package data

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// longestReport is a month of 31 days, one of them with 25 hours.
const longestReport = 31*24*time.Hour + time.Hour

// largestReport bounds the sum of the sensors' ranges in one request: a month of a hundred
// sensors, or less time of more. A hundred that send every 30 seconds have nine million
// readings.
const largestReport = 100 * longestReport

// reportTimeout ends a report before the request's own timeout, so that the answer can say
// what to choose. It is reached by sensors that send more often.
const reportTimeout = 25 * time.Second

// readBefore is how long before a report its reading starts: the interval of a node that sends each hour shows.
const readBefore = 3 * incident.MaxPause

// ReportRange selects what a report covers. It is exported only because huma reads no
// embedded fields of unexported types.
type ReportRange struct {
	RoomID    int64           `path:"room_id" doc:"Primary key of one of the caller's rooms." example:"3"`
	StartTime input.Timestamp `query:"start_time" required:"true" doc:"Begin of the range, included; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp `query:"end_time" required:"true" doc:"End of the range, excluded; ISO 8601, UTC where it has no offset. At most 31 days and an hour after the begin." example:"2026-04-01T00:00:00Z"`
	Allowable string          `query:"allowable" enum:"ashrae_a1,ashrae_a2,ashrae_a3,ashrae_a4" default:"ashrae_a1" doc:"The preset whose limits are the allowable range." example:"ashrae_a2"`
}

// Resolve refuses a range that ends before it starts, or is longer than a month.
func (in *ReportRange) Resolve(huma.Context) []error {
	within := in.EndTime.Sub(in.StartTime.Time) <= longestReport
	return append(
		input.Check(within, "query.end_time", "must be at most 31 days and an hour after start_time"),
		input.CheckRange(in.StartTime, in.EndTime)...)
}

type reportInput struct {
	ReportRange
	After rest.Cursor[string] `query:"after"` // the key is a sensor's identifier
	Limit int                 `query:"limit" minimum:"1" maximum:"1000" doc:"How many sensors at most; all without it." example:"50"`
}

type reportedSensor struct {
	SensorID           string   `json:"sensor_id" doc:"Identifier of the sensor." example:"esp32-7f3a"`
	Name               string   `json:"name" doc:"Name of the sensor." example:"Rack 3"`
	MinutesReported    float64  `json:"minutes_reported" doc:"How long readings account for: each until the next, while its sensor is not silent." example:"44620.5"`
	OutsideRecommended float64  `json:"minutes_outside_recommended" doc:"Of these, how long outside the recommended range of temperature, dew point or humidity." example:"95.5"`
	OutsideAllowable   float64  `json:"minutes_outside_allowable" doc:"Of these, how long outside the allowable range." example:"0"`
	MinTemperature     *float64 `json:"min_temperature" doc:"Lowest, in degrees Celsius; null without readings." example:"21.2"`
	MaxTemperature     *float64 `json:"max_temperature" doc:"Highest, in degrees Celsius; null without readings." example:"28.4"`
	CalibrationDue     *string  `json:"calibration_due" format:"date" doc:"When it is to be calibrated again, by the newest correction that says when; null without one." example:"2031-03-01"`
	CalibrationOverdue bool     `json:"calibration_overdue" doc:"Whether that date has passed." example:"false"`
}

func (h *Handlers) registerReport(r *rest.API) {
	// Called by the report's page, a room at a time, and by people.
	rest.Register(r, rest.Operation{
		ID: "getReport", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/data/report/{room_id}", Tag: rest.TagData,
		Summary: "Sum up how long the sensors of a room were outside their ranges",
		Description: "The recommended range is that of the preset `ashrae_recommended`. The minutes count all readings. " +
			"Sensors are those now in the room, by identifier. One request can read a month of at most 100 sensors, or a shorter range of " +
			"correspondingly more: read a larger room in parts, by `limit` and `after`.",
	}, h.report, store.ErrNoRoom, &readings.LimitError{Purpose: readings.Export}, errLargeReport(1), errSlowReport, fairqueue.ErrNoSlot)
}

// errLargeReport is the answer for a range of which that many sensors at most can be read at once.
func errLargeReport(most int) *rest.Error {
	return rest.BadRequest(fmt.Sprintf("At most %d sensors can be read of this range at once; choose fewer by limit and after, or a shorter range", most))
}

var errSlowReport = rest.BadRequest(
	"The report takes too long; choose fewer sensors by limit and after, or a shorter range")

func (h *Handlers) report(ctx context.Context, in *reportInput) (*rest.Page[reportedSensor], error) {
	sensors, err := accounts.New(h.DB).Sensors(ctx, auth.Caller(ctx), in.RoomID)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(sensors, func(a, b accounts.Sensor) int { return strings.Compare(a.ID, b.ID) })
	total := int64(len(sensors))
	if last := in.After.Last; last != nil {
		sensors = slices.DeleteFunc(sensors, func(s accounts.Sensor) bool { return s.ID <= *last })
	}
	var next *string
	if in.Limit > 0 && in.Limit < len(sensors) {
		sensors = sensors[:in.Limit]
		next = &sensors[in.Limit-1].ID
	}
	start, end := h.reportedRange(&in.ReportRange)
	if length := end.Sub(start); length > 0 && len(sensors) > int(largestReport/length) {
		return nil, errLargeReport(int(largestReport / length))
	}
	found, err := h.read(ctx, in.Allowable, sensors, start, end, &roomMinutes{})
	if err != nil {
		return nil, err
	}
	sums := rest.List(sensors, func(s accounts.Sensor) reportedSensor {
		body := reportedSensor{SensorID: s.ID, Name: s.Name, CalibrationDue: rest.Date(s.CalibrationDue), CalibrationOverdue: s.CalibrationOverdue}
		if of := found[s.ID]; of != nil {
			body.MinutesReported, body.OutsideRecommended, body.OutsideAllowable = of.counted.Minutes(), of.recommended.Minutes(), of.allowable.Minutes()
			if of.lowest <= of.highest { // else it measures none
				body.MinTemperature, body.MaxTemperature = &of.lowest, &of.highest
			}
		}
		return body
	})
	return rest.NewPage(in.After, sums, total, next), nil
}

// reportedRange is the range of a report up to now.
func (h *Handlers) reportedRange(in *ReportRange) (start, end time.Time) {
	start, end = clampRange(in.StartTime.Time, in.EndTime.Time)
	return start, reading.Earlier(end, h.Clock())
}

// read sums up the readings of sensors by node, and the minutes of their room, within the time of a report.
func (h *Handlers) read(
	ctx context.Context, preset string, sensors []accounts.Sensor, start, end time.Time, room *roomMinutes,
) (map[string]*reported, error) {
	recommended, err := incident.Recommended.Rules(incident.Scope{})
	if err != nil {
		return nil, err
	}
	allowable, err := incident.Preset(preset).Rules(incident.Scope{})
	if err != nil {
		return nil, err
	}
	ids := rest.List(sensors, func(s accounts.Sensor) string { return s.ID })
	nodes, err := accounts.New(h.DB).VisibleNodes(ctx, auth.Caller(ctx), ids)
	if err != nil || len(nodes) == 0 || !start.Before(end) {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	found := map[string]*reported{}
	for r, err := range h.Readings.Ranges(limited, nodes, start.Add(-readBefore), end) {
		switch {
		case errors.Is(err, fairqueue.ErrNoSlot): // the service is busy, whatever the report is
			return nil, err
		case err != nil && ctx.Err() == nil && (limited.Err() != nil || errors.Is(err, context.DeadlineExceeded)):
			return nil, errSlowReport
		case err != nil:
			return nil, err
		}
		of := found[r.NodeID]
		if of == nil {
			of = &reported{start: start, end: end, lowest: math.Inf(1), highest: math.Inf(-1), room: room}
			found[r.NodeID] = of
		}
		of.add(r, recommended, allowable)
	}
	for _, of := range found {
		of.count(end)
	}
	return found, nil
}

// reported sums up the readings of a node in a range, which come channel after channel, oldest
// first, from [readBefore] it on: the last of these counts at its begin.
type reported struct {
	start, end                      time.Time
	counted, recommended, allowable time.Duration // how long its readings count, and of that outside each range
	lowest, highest                 float64
	last                            reading.Reading
	gaps                            [6]time.Duration // before the last readings of a channel
	next                            int              // in gaps
	until                           time.Time        // when its node counts as silent
	was                             state            // the last
	outside                         []time.Time      // by rule: until when the last value of its quantity counts as outside
	room                            *roomMinutes
}

func (t *reported) add(r reading.Reading, recommended, allowable []incident.Rule) {
	t.count(r.Time)
	if t.outside == nil || r.Channel != t.last.Channel {
		t.outside, t.gaps = make([]time.Time, len(recommended)+len(allowable)), [6]time.Duration{}
	} else {
		t.gaps[t.next%len(t.gaps)] = r.Time.Sub(t.last.Time)
		t.next++
	}
	gaps := t.gaps
	interval := min(incident.UsualInterval(gaps[:]), incident.MaxPause)
	t.until = reading.Earlier(incident.SilentFrom(r.Time, interval), r.Time.Add(incident.MaxPause))
	point := incident.Point{Time: r.Time, Temperature: r.Temperature, Humidity: r.Humidity}
	t.last, t.was = r, wasReported
	mark := func(outside state, rules []incident.Rule, until []time.Time) {
		for i, rule := range rules {
			switch value, excess := rule.Measure(point); {
			case excess > 0:
				until[i] = t.until
			case reading.Has(value): // else the reading has the other quantity alone
				until[i] = time.Time{}
			}
			if r.Time.Before(until[i]) {
				t.was |= outside
			}
		}
	}
	mark(wasOutsideRecommended, recommended, t.outside)
	mark(wasOutsideAllowable, allowable, t.outside[len(recommended):])
	if reading.Has(r.Temperature) && !r.Time.Before(t.start) {
		t.lowest, t.highest = min(t.lowest, r.Temperature), max(t.highest, r.Temperature)
	}
}

// count counts the last reading until the next, which another channel may have had earlier.
func (t *reported) count(until time.Time) {
	if until.Before(t.last.Time) {
		until = t.end
	}
	from := reading.Later(t.last.Time, t.start)
	length := reading.Earlier(until, t.until).Sub(from)
	if length <= 0 {
		return
	}
	t.counted += length
	if t.was&wasOutsideRecommended != 0 {
		t.recommended += length
	}
	if t.was&wasOutsideAllowable != 0 {
		t.allowable += length
	}
	t.room.mark(from, length, t.was)
}

type roomTime struct {
	Minutes            int `json:"minutes" doc:"How many minutes of the range have been." example:"44640"`
	Reported           int `json:"minutes_reported" doc:"Of these, in how many some sensor reported." example:"44630"`
	OutsideRecommended int `json:"minutes_outside_recommended" doc:"In how many some sensor was outside the recommended range." example:"95"`
	OutsideAllowable   int `json:"minutes_outside_allowable" doc:"In how many some sensor was outside the allowable range." example:"0"`
}

func (h *Handlers) registerRoomTime(r *rest.API) {
	// Called by the report's page, a room at a time.
	rest.Answer(r, rest.Operation{
		ID: "getRoomTime", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/data/report/{room_id}/time", Tag: rest.TagData,
		Summary: "Count the minutes in which a room was outside its ranges",
		Description: "A minute counts once, however many sensors were outside the range in it, and however briefly. Ranges and readings are those of " +
			"the report, of all sensors of the room.",
	}, h.roomTime, store.ErrNoRoom, &readings.LimitError{Purpose: readings.Export}, errSlowReport, fairqueue.ErrNoSlot)
}

func (h *Handlers) roomTime(ctx context.Context, in *ReportRange) (roomTime, error) {
	sensors, err := accounts.New(h.DB).Sensors(ctx, auth.Caller(ctx), in.RoomID)
	if err != nil {
		return roomTime{}, err
	}
	start, end := h.reportedRange(in)
	room := &roomMinutes{start: start, minutes: make([]state, max(0, int(math.Ceil(end.Sub(start).Minutes()))))}
	_, err = h.read(ctx, in.Allowable, sensors, start, end, room)
	return room.sum(), err
}

// state is that of a sensor, or of a minute of a room.
type state byte

const (
	wasReported state = 1 << iota
	wasOutsideRecommended
	wasOutsideAllowable
)

// roomMinutes are the minutes of a range.
type roomMinutes struct {
	start   time.Time
	minutes []state
}

// mark records a reading in the minutes for which it counts.
func (m *roomMinutes) mark(at time.Time, length time.Duration, was state) {
	from := at.Sub(m.start)
	for k := int(from / time.Minute); k < len(m.minutes) && time.Duration(k)*time.Minute < from+length; k++ {
		m.minutes[k] |= was
	}
}

func (m *roomMinutes) sum() roomTime {
	sum := roomTime{Minutes: len(m.minutes)}
	for _, was := range m.minutes {
		sum.Reported += int(was & wasReported)
		sum.OutsideRecommended += int(was & wasOutsideRecommended >> 1)
		sum.OutsideAllowable += int(was & wasOutsideAllowable >> 2)
	}
	return sum
}
