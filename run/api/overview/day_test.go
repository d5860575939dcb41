package overview

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
)

// fakeSpots are the temperatures of each node in each half hour, in tenths.
type fakeSpots struct {
	of    map[string]map[time.Time]int16
	reads []int // how many nodes
}

func (f *fakeSpots) HotSpots(_ context.Context, _ int64, since time.Time, nodes []string) ([]incidents.HotSpots, error) {
	var found []incidents.HotSpots
	for node, parts := range f.of {
		if nodes != nil && !slices.Contains(nodes, node) {
			continue
		}
		spots := incidents.HotSpots{NodeID: node}
		for at, value := range parts {
			if !at.Before(since) {
				spots.HalfHours, spots.Temperatures = append(spots.HalfHours, int32(halfHourOf(at))), append(spots.Temperatures, float64(value)/10)
			}
		}
		found = append(found, spots)
	}
	f.reads = append(f.reads, len(nodes))
	return found, nil
}

// want is the sparkline of a node.
func (f *fakeSpots) want(node string, start time.Time) string {
	var parts []string
	before := int16(0)
	for i := range halfHours {
		value, ok := f.of[node][start.Add(time.Duration(i)*halfHour)]
		if !ok {
			parts = append(parts, "")
			continue
		}
		parts = append(parts, strconv.Itoa(int(value-before)))
		before = value
	}
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return strings.Join(parts, ",")
}

// TestDay asks for the days of 300 sensors, most of which send, some hours late: each answer has the newest readings,
// and after a round of answers without any the days are exactly what is stored.
func TestDay(t *testing.T) {
	t.Parallel()
	const sensors = 300
	chance := rand.New(rand.NewPCG(1, 1))
	spots := &fakeSpots{of: map[string]map[time.Time]int16{}}
	live := make([]incidents.LiveSensor, sensors)
	for i := range live {
		live[i].NodeID = fmt.Sprintf("n%03d", i)
		spots.of[live[i].NodeID] = map[time.Time]int16{}
	}
	var d day
	now := time.Date(2026, 3, 1, 0, 10, 0, 0, time.UTC)
	answer := func() {
		t.Helper()
		d.advance(must.Get(d.look(t.Context(), spots, 1, now))(t), live, now)
	}
	hot := func(i int, at time.Time, value int16) {
		parts, part := spots.of[live[i].NodeID], at.Truncate(halfHour)
		before, ok := parts[part]
		if !ok || value > before {
			parts[part] = value
		}
	}
	for end := now.Add(48 * time.Hour); now.Before(end); now = now.Add(time.Duration(chance.IntN(14)) * time.Minute) {
		for i := range live {
			value := int16(200 + chance.IntN(100))
			switch chance.IntN(8) {
			case 0:
				hot(i, now.Add(-time.Duration(chance.IntN(23))*time.Hour), value)
			case 1, 2, 3, 4, 5:
				hot(i, now, value)
				live[i].Timestamp, live[i].TemperatureAt, live[i].Temperature = new(now), new(now), new(float64(value)/10)
			}
		}
		answer()
		for _, l := range live {
			if l.Timestamp != nil && l.Timestamp.Equal(now) && d.lines[l.NodeID].highest[halfHourOf(now)] < tenths(*l.Temperature) {
				t.Fatalf("the newest reading of %s is not in its day", l.NodeID)
			}
		}
	}
	for range sensors / minReread {
		now = now.Add(time.Minute)
		answer()
	}
	for _, l := range live {
		if got, want := d.sparkline(l.NodeID), spots.want(l.NodeID, d.start); got != want {
			t.Fatalf("%s: %q, want %q", l.NodeID, got, want)
		}
	}
	if all := slices.Index(spots.reads[1:], 0); spots.reads[0] != 0 || spots.reads[len(spots.reads)-1] != minReread || all < 0 {
		t.Errorf("read %v", spots.reads)
	}
}

// TestJudgedWithoutTemperature holds that a sensor that measures humidity alone does not learn for ever.
func TestJudgedWithoutTemperature(t *testing.T) {
	t.Parallel()
	d := day{lines: map[string]*line{"damp": emptyLine()}}
	damp := incidents.LiveSensor{NodeID: "damp", JudgedBy: learning.ByWindow}
	must.Equal(t, "judged by", "window", d.judgedBy(damp, false))
	damp.TemperatureAt = new(time.Now())
	must.Equal(t, "with a temperature", "learning", d.judgedBy(damp, false))
	damp.HumidityAt = new(damp.TemperatureAt.Add(24 * time.Hour))
	must.Equal(t, "a day after its last temperature", "window", d.judgedBy(damp, false))
}
