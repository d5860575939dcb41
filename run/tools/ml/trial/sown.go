package trial

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
)

// Event is a fault that was sown on recorded readings, at all of some tracks.
type Event struct {
	fault.Fault

	Group  string // node, rack or room
	Tracks []int
	// Lost is until when it must be told that several nodes lost their cooling: ten minutes after they left
	// their own range, or as soon as they are by 1 °C beyond it, whichever is later; zero where they never are.
	Lost time.Time
}

// Part is the part of a recording that may be looked at.
type Part string

// The parts. A third of the nodes and the last day are kept out of all tuning.
const (
	Tuning Part = "tuning"
	Held   Part = "held"
)

// Of returns the part of a recording: its nodes, and of the tuning ones what came before the last
// day. A recording of one node is parted by time alone: the first two thirds are for tuning.
func (p Part) Of(tracks []Track) []Track {
	first, last := Span(tracks)
	var kept []Track
	for i, t := range tracks {
		until := last.Truncate(24 * time.Hour)
		from := first
		switch {
		case len(tracks) == 1:
			middle := first.Add(last.Sub(first) * 2 / 3)
			if until = middle; p == Held {
				from, until = middle, last
			}
		case (i%3 == 2) != (p == Held):
			continue
		case p == Held:
			until = last
		}
		t.Readings = slices.DeleteFunc(slices.Clone(t.Readings), func(r reading.Reading) bool { return r.Time.Before(from) || !r.Time.Before(until) })
		t.Events = nil
		kept = append(kept, t)
	}
	return kept
}

// Sowing says which faults are sown.
type Sowing struct {
	Seed  uint64
	Kinds []fault.Kind
	Each  int           // of a kind
	Gap   time.Duration // between two at a node
	From  time.Time
}

// rack is how many nodes stand for those of a rack: next to each other in a room's order.
const rack = 4

// Sow returns tracks with faults on their readings, and the faults that change one. Losses of cooling befall
// nodes, racks and rooms, the other kinds of the air nodes and rooms, those of sensors a node.
func (s Sowing) Sow(tracks []Track) ([]Track, []Event) {
	begin, end := Span(tracks)
	interval := end.Sub(begin) / time.Duration(len(tracks[0].Readings))
	places := map[string]int{}
	rooms := map[string][]string{}
	var nodes, racks, whole []fault.Group
	for i, t := range tracks {
		places[t.Node] = i
		rooms[t.Room] = append(rooms[t.Room], t.Node)
		nodes = append(nodes, fault.Group{Name: "node", Nodes: []string{t.Node}})
	}
	for _, t := range tracks {
		if names := rooms[t.Room]; len(names) > 1 && names[0] == t.Node {
			whole = append(whole, fault.Group{Name: "room", Nodes: names})
			for some := range slices.Chunk(names, rack) {
				if len(some) > 1 && len(names) > rack {
					racks = append(racks, fault.Group{Name: "rack", Nodes: some})
				}
			}
		}
	}
	taken := map[string][]fault.Fault{}
	var events []Event
	dry := math.IsNaN(tracks[0].Readings[0].Humidity)
	for k, kind := range s.Kinds {
		if dry && (kind == fault.Humidity || kind == fault.Leak) {
			continue
		}
		at := [][]fault.Group{nodes}
		switch kind {
		case fault.Cooling:
			at = [][]fault.Group{nodes, racks, whole}
		case fault.Slow, fault.Nightly:
			at = [][]fault.Group{nodes, whole}
		default:
		}
		for g, groups := range at {
			if len(groups) == 0 {
				continue
			}
			plan := fault.Plan{Seed: s.Seed + uint64(100*k+g), From: s.From, To: end, Interval: max(30*time.Second, interval)} //nolint:gosec // small
			faults, where := fault.OnRecorded(plan, kind, s.Each, s.Gap, groups, taken)
			for i, f := range faults {
				e := Event{Fault: f, Group: where[i].Name}
				for _, n := range where[i].Nodes {
					e.Tracks = append(e.Tracks, places[n])
				}
				events = append(events, e)
			}
		}
	}
	sown := slices.Clone(tracks)
	for i, t := range sown {
		its := fault.Of(taken[t.Node], "", "")
		sown[i].Events, sown[i].Readings = its, sowOn(t.Readings, its)
	}
	events = slices.DeleteFunc(events, func(e Event) bool { return !e.changes(tracks, sown) })
	for i, e := range events {
		if e.Kind == fault.Cooling && e.Group != "node" {
			events[i].Lost = lost(e, tracks, sown, begin)
		}
	}
	return sown, events
}

// indexAt is the index of the first reading from a time on.
func indexAt(readings []reading.Reading, at time.Time) int {
	i, _ := slices.BinarySearchFunc(readings, at, func(r reading.Reading, at time.Time) int { return r.Time.Compare(at) })
	return i
}

// changes reports whether an event changes a reading: a spike of the time of one that was lost
// is not there to be found.
func (e Event) changes(recorded, sown []Track) bool {
	return slices.ContainsFunc(e.Tracks, func(track int) bool {
		for i, r := range recorded[track].Readings {
			if e.Affects(r.Time) && !r.Equal(sown[track].Readings[i]) {
				return true
			}
		}
		return false
	})
}

// lost finds [Event.Lost] by the rises of the nodes' median within the spans of the cooling path.
// Their own range is the largest until the event.
func lost(e Event, recorded, sown []Track, begin time.Time) time.Time {
	spans := [4]int{5, 10, 20, 40} // minutes
	until := int(e.Settled().Sub(begin) / time.Minute)
	start := int(e.Start.Sub(begin) / time.Minute)
	before, now := medians(recorded, e.Tracks, begin, start), medians(sown, e.Tracks, begin, until)
	var own [4]float64
	for k, span := range spans {
		for m := span; m < len(before); m++ {
			if rise := before[m] - before[m-span]; rise > own[k] {
				own[k] = rise
			}
		}
	}
	left := -1
	for m := start; m < len(now); m++ {
		for k, span := range spans {
			beyond := now[m] - now[max(0, m-span)] - own[k]
			if beyond > 0 && left < 0 {
				left = m
			}
			if beyond > 1 {
				return begin.Add(time.Duration(max(m, left+10)) * time.Minute)
			}
		}
	}
	return time.Time{}
}

// medians are those of some tracks' temperatures in each minute, NaN where none was heard within five.
func medians(tracks []Track, some []int, begin time.Time, minutes int) []float64 {
	all := make([]float64, minutes)
	next := make([]int, len(some))
	for m := range all {
		at := begin.Add(time.Duration(m) * time.Minute)
		var heard []float64
		for k, i := range some {
			readings := tracks[i].Readings
			for next[k] < len(readings) && !readings[next[k]].Time.After(at) {
				next[k]++
			}
			if n := next[k] - 1; n >= 0 && at.Sub(readings[n].Time) <= 5*time.Minute {
				heard = append(heard, readings[n].Temperature)
			}
		}
		if all[m] = math.NaN(); len(heard) > 0 {
			all[m] = median(heard)
		}
	}
	return all
}

func sowOn(readings []reading.Reading, faults []fault.Fault) []reading.Reading {
	sown := slices.Clone(readings)
	stuck := func(start time.Time) fault.Values {
		r := readings[min(indexAt(readings, start), len(readings)-1)]
		return fault.Values{Temperature: r.Temperature, Humidity: r.Humidity}
	}
	for i, r := range sown {
		if !slices.ContainsFunc(faults, func(f fault.Fault) bool { return f.Affects(r.Time) }) {
			continue
		}
		v := fault.Values{Temperature: r.Temperature, Humidity: r.Humidity}
		if math.IsNaN(v.Humidity) {
			v.Humidity = reading.MinHumidity
		}
		v = fault.Measure(faults, r.Time, v, stuck)
		sown[i].Temperature = reading.Round(v.Temperature)
		if !math.IsNaN(r.Humidity) {
			sown[i].Humidity = reading.Round(v.Humidity)
		}
	}
	return sown
}

// Found is what a replay told of sown faults, as people are told: alarms of a room and cause
// less than half an hour apart are one incident.
type Found struct {
	Tallies []Tally // by kind and group
	All     Tally   // of all events
	False   int     // incidents of which no alarm is at a node that a fault befell
	Months  float64 // of nodes
}

// caught is when an alarm came first at one of an event's tracks, from its start to a quarter of an hour after it has
// settled, and whether its reason fits; zero for none.
func (e Event) caught(tracks []Track, scores []Scores, alarm float64) (first time.Time, fit bool) {
	for _, i := range e.Tracks {
		for j, r := range tracks[i].Readings {
			if r.Time.Before(e.Start) || float64(scores[i].Score[j]) <= alarm {
				continue
			}
			if r.Time.Before(e.Settled().Add(15*time.Minute)) && (first.IsZero() || r.Time.Before(first)) {
				first, fit = r.Time, fits(e.Kind, scores[i].by(j))
			}
			break
		}
	}
	return first, fit
}

// Compare compares alarms at a budget with the events from a time on.
func Compare(tracks []Track, events []Event, scores []Scores, alarm float64, from time.Time) Found {
	f := Found{All: Tally{Name: "all"}}
	tallies := map[string]*Tally{}
	for _, e := range events {
		name := fmt.Sprintf("%s of a %s", e.Kind, e.Group)
		if tallies[name] == nil {
			tallies[name] = &Tally{Name: name}
		}
		first, fit := e.caught(tracks, scores, alarm)
		tallies[name].add(e, first, fit)
		f.All.add(e, first, fit)
	}
	type cause struct{ room, name string }
	type told struct {
		at    time.Time
		right bool
	}
	incidents := map[cause][]told{}
	apart := joined
	for i, t := range tracks {
		for j, r := range t.Readings {
			if !r.Time.Before(from) && float64(scores[i].Score[j]) > alarm {
				by := cause{t.Room, classOf(scores[i].by(j))}
				incidents[by] = append(incidents[by], told{r.Time, t.wrongAt(r.Time)})
			}
		}
		if n := len(t.Readings); n > 1 {
			apart = max(apart, 3*t.Readings[n-1].Time.Sub(t.Readings[0].Time)/time.Duration(n))
		}
		f.Months += heard(t.Readings, from).Hours() / month.Hours()
	}
	for _, all := range incidents {
		slices.SortFunc(all, func(a, b told) int { return a.at.Compare(b.at) })
		for k, right := 0, false; k < len(all); k++ {
			right = right || all[k].right
			if k+1 < len(all) && all[k+1].at.Sub(all[k].at) <= apart {
				continue
			}
			if !right {
				f.False++
			}
			right = false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		f.Tallies = append(f.Tallies, *tallies[name])
	}
	return f
}

// classOf is what an alarm is of, as incidents are: the temperature, the water in the air, or a sensor.
func classOf(by string) string {
	switch {
	case slices.Contains([]string{"unchanged", "roughness", "digits", "interval"}, by):
		return "sensor"
	case strings.Contains(by, "dew_point"):
		return "dew_point"
	default:
		return "temperature"
	}
}
