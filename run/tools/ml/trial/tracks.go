package trial

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/recording"
)

// Made is a simulated fleet with few faults in its past and many in its present.
type Made struct {
	Start     time.Time // zero: [From]
	Site      site.Options
	Past, Now time.Duration
	Before    map[fault.Kind]fault.Rate // in the past
	After     map[fault.Kind]fault.Rate
	Scale     float64       // of the peaks after
	Faults    []fault.Fault // beside those that are sown
}

// ShippedSeed is that of the site that the shipped calibration was made of. It is
// neither among [TuningSeeds] nor among [TestSeeds].
const ShippedSeed = 900

// TuningSeeds are for whoever changes the recipe.
func TuningSeeds() []uint64 { return []uint64{1, 2, 3} }

// TestSeeds are for reports.
func TestSeeds() []uint64 { return []uint64{101, 102, 103} }

// From is when simulated fleets begin: a Monday.
func From() time.Time { return time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) }

// Tracks makes the fleet, and says when its present begins.
func (m Made) Tracks() ([]Track, time.Time) {
	s := site.New(m.Site)
	places := s.Places()
	start := cmp.Or(m.Start, From())
	now := start.Add(m.Past)
	end := now.Add(m.Now)
	plan := fault.Plan{Seed: m.Site.Seed, From: start.Add(24 * time.Hour), To: now.Add(-3 * time.Hour), Interval: m.Site.Interval, Rates: m.Before}
	faults := slices.Clone(m.Faults)
	if m.Past > 2*24*time.Hour {
		faults = append(faults, fault.Sow(plan, places)...)
	}
	plan.From, plan.To, plan.Rates, plan.Scale, plan.Seed = now, end, m.After, m.Scale, m.Site.Seed+1000
	faults = append(faults, fault.Sow(plan, places)...)
	tracks := make([]Track, len(places))
	for i, p := range places {
		tracks[i] = Track{Node: p.Node, Room: p.Room, Events: fault.Of(faults, p.Room, p.Node), Readings: s.Series(i, start, end, faults)}
	}
	return tracks, now
}

// Judge is a person who looks at every episode and errs in a share of them.
func Judge(tracks []Track, seed uint64, wrong float64) func(track int, e anomaly.Episode) bool {
	return func(track int, e anomaly.Episode) bool {
		right := slices.ContainsFunc(tracks[track].Events, func(f fault.Fault) bool {
			return e.End.After(f.Start) && e.Start.Before(f.Settled().Add(joined))
		})
		errs := fault.Uniform(seed, uint64(track), uint64(e.Start.UnixNano())) < wrong //nolint:gosec // keys of random numbers
		return right != errs
	}
}

// ReadTracks reads recorded tracks, each instant once; see [recording.Read] for their form. A humidity that is missing
// becomes NaN. Readings labelled anomalous within half an hour are one event. It says how many rows gave no reading:
// without a temperature, with a value that no node can send, of a time that no reading can have, or of an instant twice.
func ReadTracks(r io.Reader) (tracks []Track, skipped int, err error) {
	recorded, err := recording.Read(r, new(math.NaN()))
	if err != nil {
		return nil, 0, err
	}
	skipped = recorded.WithoutTemperature
	for _, id := range recorded.Nodes {
		t := Track{Node: id, Room: recorded.Rows[id][0].Room}
		labelled := false
		for _, row := range recorded.Rows[id] {
			wrong, given, err := parseLabel(row.Label)
			if err != nil {
				return nil, skipped, fmt.Errorf("line %d: %w", row.Line, err)
			}
			humidity := row.Humidity
			if math.IsNaN(humidity) {
				humidity = reading.MinHumidity
			}
			if !reading.InCalendar(row.Time) || reading.ValidateMeasurement(row.Temperature, humidity) != nil {
				skipped++
				continue
			}
			at := reading.TruncateTime(row.Time)
			if len(t.Readings) > 0 && t.Readings[len(t.Readings)-1].Time.Equal(at) {
				skipped++
				continue
			}
			t.Readings = append(t.Readings, reading.Reading{
				NodeID: id, MessageID: strconv.Itoa(row.Line), Time: at, Temperature: row.Temperature, Humidity: row.Humidity,
			})
			t.Labels = append(t.Labels, wrong)
			labelled = labelled || given
		}
		if !labelled {
			t.Labels = nil
		}
		if len(t.Readings) > 0 {
			t.Events = t.labelled()
			tracks = append(tracks, t)
		}
	}
	if len(tracks) == 0 {
		return nil, skipped, fmt.Errorf("no readings in %d rows", recorded.Total)
	}
	return tracks, skipped, nil
}

// parseLabel reads a label; an empty field is none.
func parseLabel(text string) (anomalous, given bool, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return false, false, nil
	}
	if value, err := strconv.ParseFloat(text, 64); err == nil && (value == 0 || value == 1) {
		return value == 1, true, nil
	}
	return false, false, fmt.Errorf("label %q: say 1 for an anomaly, 0 for none", text)
}

// labelled are the events of the readings that are labelled anomalous.
func (t Track) labelled() (events []fault.Fault) {
	apart := max(joined, 2*t.Interval())
	for i, wrong := range t.Labels {
		if !wrong {
			continue
		}
		at := t.Readings[i].Time
		if last := len(events) - 1; last < 0 || at.Sub(events[last].End) > apart {
			events = append(events, fault.Fault{Kind: "labelled", Start: at})
		}
		events[len(events)-1].End = at.Add(time.Second)
	}
	return events
}

// Interval is the median time between two readings; 0 for fewer than two.
func (t Track) Interval() time.Duration {
	gaps := make([]time.Duration, 0, len(t.Readings))
	for i := 1; i < len(t.Readings); i++ {
		gaps = append(gaps, t.Readings[i].Time.Sub(t.Readings[i-1].Time))
	}
	return median(gaps)
}

// Slow reports whether a node was recorded less often than every minute: the hour of a window does not hold enough of it.
func (t Track) Slow() bool { return t.Interval() > time.Minute }

// Quickened returns a node that is [Track.Slow] as if it had sent every 30 s, with gaps that shrink by as
// much; others unchanged. It still tells the quality of the forest, and nothing of what happens within 20 s.
func (t Track) Quickened() Track {
	if !t.Slow() {
		return t
	}
	first, quicker := t.Readings[0].Time, float64(30*time.Second)/float64(t.Interval())
	t.Readings = slices.Clone(t.Readings)
	for i := range t.Readings {
		since := float64(t.Readings[i].Time.Sub(first))
		t.Readings[i].Time = reading.TruncateTime(first.Add(time.Duration(since * quicker)))
	}
	return t
}
