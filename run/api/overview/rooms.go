package overview

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
)

// The recommended inlet temperatures of ASHRAE TC9.9 (2021), in degrees Celsius.
const (
	recommendedLow  = 18
	recommendedHigh = 27
)

func worstFirst() []string {
	return []string{stateCritical, stateSilent, stateWarning, stateLate, stateUnreported, stateOK}
}

// trouble ranks a room by its worst sensors.
type trouble struct {
	state  int     // twice the place in worstFirst, and one more where no sensor of that state reports
	excess float64 // of its incidents beyond their limits, in whole units
	beyond float64 // the recommended range, in whole degrees so that rooms do not change places at each reading
}

// orderRooms puts the room with the gravest trouble first.
func (b *Body) orderRooms(lasting []incidents.Incident) {
	order := worstFirst()
	rooms := make(map[int64]trouble, len(b.Rooms))
	for _, r := range b.Rooms {
		rooms[r.ID] = trouble{state: 2 * (len(order) - 1)}
	}
	for _, s := range b.Sensors {
		room := rooms[s.RoomID]
		state := 2 * slices.Index(order, s.State) //nolint:mnd // see trouble
		if !s.Reports {
			state++
		}
		room.state = min(room.state, state)
		if t := s.values.Temperature; s.Reports && reading.Has(t) {
			room.beyond = max(room.beyond, math.Ceil(t-recommendedHigh), math.Ceil(recommendedLow-t))
		}
		rooms[s.RoomID] = room
	}
	for _, i := range lasting {
		if room, known := rooms[i.RoomID]; known && !i.Now.Worst.Silent {
			room.excess = max(room.excess, math.Floor(i.Now.Worst.Excess))
			rooms[i.RoomID] = room
		}
	}
	for k := range b.Rooms {
		b.Rooms[k].State = order[rooms[b.Rooms[k].ID].state/2]
	}
	names := collate.New(language.Und, collate.IgnoreCase, collate.Numeric) // Hall 9 comes before Hall 10
	slices.SortStableFunc(b.Rooms, func(one, other liveRoom) int {
		a, b := rooms[one.ID], rooms[other.ID]
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(b.excess, a.excess), cmp.Compare(b.beyond, a.beyond), names.CompareString(one.Name, other.Name))
	})
}

const (
	// changeOver is the time over which a room's change of temperature is measured.
	changeOver = 15 * time.Minute
	// changeWithin is how much older than that the compared reading may be.
	changeWithin = 10 * time.Minute
)

// compareRooms sets each room's highest temperature, and how it has changed.
func (b *Body) compareRooms(ctx context.Context, past incidents.Store, customer int64, now time.Time) error {
	rooms := make(map[int64]*liveRoom, len(b.Rooms))
	for k := range b.Rooms {
		rooms[b.Rooms[k].ID] = &b.Rooms[k]
	}
	for _, s := range b.Sensors {
		room := rooms[s.RoomID]
		if room == nil || !s.Reports || !reading.Has(s.values.Temperature) {
			continue
		}
		if room.MaxTemperature == nil || *s.Temperature > *room.MaxTemperature {
			room.MaxTemperature, room.hottest = s.Temperature, s.ID
		}
	}
	byNode := make(map[string]*liveRoom, len(b.Rooms))
	var nodes []string
	for k := range b.Rooms {
		if id := b.Rooms[k].hottest; id != "" {
			nodes, byNode[id] = append(nodes, id), &b.Rooms[k]
		}
	}
	until := now.Add(-changeOver)
	before, err := past.LastReadings(ctx, customer, nodes, until.Add(-changeWithin), until)
	if err != nil {
		return err
	}
	for _, m := range before {
		room := byNode[m.NodeID]
		room.Change15m = new(math.Round((*room.MaxTemperature-m.Temperature)*10) / 10)
	}
	return nil
}
