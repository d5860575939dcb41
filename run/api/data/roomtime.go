package data

import (
	"context"
	"math"
	"net/http"
	"time"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

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
	}, h.roomTime, store.ErrNoRoom, &readings.LimitError{Purpose: readings.Export}, errSlowReport)
}

func (h *Handlers) roomTime(ctx context.Context, in *ReportRange) (roomTime, error) {
	customer := auth.Caller(ctx)
	sensors, err := accounts.New(h.DB).Sensors(ctx, customer, in.RoomID)
	if err != nil {
		return roomTime{}, err
	}
	nodes, err := accounts.New(h.DB).VisibleNodes(ctx, customer, rest.List(sensors, func(s accounts.Sensor) string { return s.ID }))
	if err != nil {
		return roomTime{}, err
	}
	recommended, allowable, err := in.rules()
	if err != nil {
		return roomTime{}, err
	}
	start, end := h.reportedRange(in)
	room := &roomMinutes{start: start, minutes: make([]byte, max(0, int(math.Ceil(end.Sub(start).Minutes()))))}
	of := newReported(room)
	err = h.read(ctx, nodes, start, end, func(r reading.Reading) {
		if of.last.NodeID != r.NodeID {
			of.count(end)
			of = newReported(room)
		}
		of.add(r, recommended, allowable)
	})
	of.count(end)
	return room.sum(), err
}

// The states of a minute of a room.
const (
	wasReported = 1 << iota
	wasOutsideRecommended
	wasOutsideAllowable
)

// roomMinutes are the minutes of a range.
type roomMinutes struct {
	start   time.Time
	minutes []byte // the states of each
}

// mark records a reading in the minutes for which it counts.
func (m *roomMinutes) mark(at time.Time, length time.Duration, outsideRecommended, outsideAllowable bool) {
	if length <= 0 {
		return
	}
	was := byte(wasReported)
	if outsideRecommended {
		was |= wasOutsideRecommended
	}
	if outsideAllowable {
		was |= wasOutsideAllowable
	}
	from := at.Sub(m.start)
	for k := max(0, int(from/time.Minute)); k < len(m.minutes) && time.Duration(k)*time.Minute < from+length; k++ {
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
