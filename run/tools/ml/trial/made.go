package trial

import (
	"cmp"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
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
		tracks[i] = Track{Node: p.Node, Room: p.Room}
		for _, f := range faults {
			if f.Room == p.Room && (f.Node == "" || f.Node == p.Node) {
				tracks[i].Events = append(tracks[i].Events, f)
			}
		}
		for _, row := range s.Series(i, start, end, faults) {
			tracks[i].Readings = append(tracks[i].Readings, reading.Reading{NodeID: p.Node, Time: row.Time, Temperature: row.Temperature, Humidity: row.Humidity})
		}
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
