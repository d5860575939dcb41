package trial_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

const day = 24 * time.Hour

func made(seed uint64, past, now time.Duration, after map[fault.Kind]fault.Rate) ([]trial.Track, time.Time) {
	return trial.Made{
		Site: site.Options{Seed: seed, Rooms: 1, PerRoom: 6, Interval: time.Minute}, Past: past, Now: now, After: after,
	}.Tracks()
}

// The recipe finds more than the best of the simple baselines, at the same budget, with
// thresholds from the past alone, and says why.
func TestBetterThanTheBaselines(t *testing.T) {
	t.Parallel()
	tracks, now := made(11, 7*day, 6*day, fault.Ordinary())
	scores, _ := trial.Replay(tracks, trial.Options{Frozen: now, Tick: time.Minute})
	ours := trial.Measure(tracks, scores, anomaly.Alarm(1), now)
	rates := trial.RateOfChange(tracks)
	theirs := trial.Measure(tracks, rates, trial.Learned(tracks, rates, 1, now), now)
	if ours.Share() < 0.8 || ours.Share() <= theirs.Share() {
		t.Errorf("caught %.2f of %d, the rate of change %.2f", ours.Share(), ours.Events, theirs.Share())
	}
	if limits := trial.Measure(tracks, trial.Limits(tracks), 0.5, now); ours.Share() <= limits.Share() {
		t.Errorf("caught %.2f, fixed limits %.2f", ours.Share(), limits.Share())
	}
	for i, track := range tracks {
		var last time.Time // alarm
		begun := 0
		for j, r := range track.Readings {
			if float64(scores[i].Score[j]) > anomaly.Alarm(1) {
				if last.IsZero() || r.Time.Sub(last) > 30*time.Minute {
					begun++
				}
				if e := scores[i].Episodes[begun-1]; e.Start.After(r.Time) || e.End.Before(r.Time) {
					t.Fatalf("an alarm of %s is in no episode: %+v", r.Time, e)
				}
				last = r.Time
			}
		}
		must.Equal(t, "episodes, by stretches of alarms less than half an hour apart", begun, len(scores[i].Episodes))
	}
	must.Hold(t, ours.Right*10 >= ours.Caught*8, "the first reason of %d is right for %d", ours.Caught, ours.Right)
	must.Hold(t, trial.PRAUC(tracks, scores, now) > trial.PRAUC(tracks, rates, now),
		"the readings of faults are no more apart than by the rate of change")
}

// A whole room that warms is told of, though every neighbour warms too.
func TestRoomIsNotExcused(t *testing.T) {
	t.Parallel()
	tracks, now := made(12, 7*day, 4*day, map[fault.Kind]fault.Rate{fault.Cooling: {PerMonth: 20, Room: true}})
	scores, _ := trial.Replay(tracks, trial.Options{Frozen: now, Tick: time.Minute})
	if o := trial.Measure(tracks, scores, anomaly.Alarm(1), now); o.Share() < 0.6 {
		t.Errorf("caught %d of %d", o.Caught, o.Events)
	}
}

// What becomes of a node that changes for good, or comes back: an episode at most, and judged as before a day later.
func TestLasting(t *testing.T) {
	t.Parallel()
	healthy, _ := made(13, 7*day, 10*day, nil)
	from := trial.From().Add(7 * day)
	undisturbed, _ := trial.Replay(healthy, trial.Options{Tick: time.Minute})
	usual := trial.Measure(healthy[1:], undisturbed[1:], anomaly.Alarm(1), from).False
	const wholeSite = "a site whose days begin an hour earlier"
	for name, change := range map[string]func(r reading.Reading) (reading.Reading, bool){
		"a sensor that is replaced by one that says 2 °C more": func(r reading.Reading) (reading.Reading, bool) {
			r.Temperature += 2
			return r, true
		},
		"a sensor that is moved to the hot aisle": func(r reading.Reading) (reading.Reading, bool) {
			warm := r.Temperature + 6
			r.Humidity = reading.RelativeHumidity(warm, reading.DewPoint(r.Temperature, r.Humidity))
			r.Temperature = warm
			return r, true
		},
		"a sensor that is silent for a week": func(r reading.Reading) (reading.Reading, bool) {
			return r, !r.Time.Before(from.Add(7 * day))
		},
		wholeSite: func(r reading.Reading) (reading.Reading, bool) {
			r.Time = r.Time.Add(-time.Hour)
			return r, !r.Time.Before(from)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracks := slices.Clone(healthy)
			changed := tracks[:1]
			if name == wholeSite {
				changed = tracks
			}
			settled := from.Add(3 * day)
			for i := range changed {
				first := slices.IndexFunc(changed[i].Readings, func(r reading.Reading) bool { return !r.Time.Before(from) })
				readings := slices.Clone(changed[i].Readings[:first])
				for _, r := range changed[i].Readings[first:] {
					if r, sent := change(r); sent {
						readings = append(readings, r)
					}
				}
				if back := readings[first].Time; back.After(settled) {
					settled = back.Add(day)
				}
				changed[i].Readings = slices.DeleteFunc(readings, func(r reading.Reading) bool { return r.Time.After(settled.Add(2 * day)) })
			}
			scores, _ := trial.Replay(tracks, trial.Options{Tick: time.Minute})
			if late := trial.Measure(changed, scores[:len(changed)], anomaly.Alarm(1), settled); late.False*2/30 > 1.5 {
				t.Errorf("%.1f episodes of a node in the two days after it had settled", late.False*2/30)
			}
			if others := trial.Measure(tracks[1:], scores[1:], anomaly.Alarm(1), from); name != wholeSite && others.False > usual+4 {
				t.Errorf("its neighbours alarm %.1f times a month, %.1f without it", others.False, usual)
			}
		})
	}
}

// A new site is judged from its second hour on by the shipped values: what is wrong in its
// first days is found, such as a sensor that is stuck before a day of it is known, and what
// is not is no flood, though a quarter of the nodes are restless and a quarter coarse.
func TestNewSite(t *testing.T) {
	t.Parallel()
	tracks, _ := trial.Made{
		Site: site.Options{Seed: 14, Rooms: 2, PerRoom: 6, Interval: time.Minute, Unlike: true}, Now: 4 * day,
		Faults: []fault.Fault{
			{Kind: fault.Leak, Room: "room1", Node: "room1-node2", Start: trial.From().Add(20 * time.Hour), End: trial.From().Add(26 * time.Hour), Peak: 5, Constant: 15 * time.Minute},
			{Kind: fault.Stuck, Room: "room1", Node: "room1-node3", Start: trial.From().Add(5 * time.Hour), End: trial.From().Add(8 * time.Hour)},
		},
	}.Tracks()
	scores, _ := trial.Replay(tracks, trial.Options{Tick: time.Minute})
	o := trial.Measure(tracks, scores, anomaly.Alarm(1), trial.From())
	if alarms := o.False * 12 * 4 / 30; o.Caught != 2 || o.Right != 2 || alarms > 3 {
		t.Errorf("found %d of 2, %d rightly named, %.0f false alarms of twelve nodes in four days", o.Caught, o.Right, alarms)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{0, 5*time.Minute + time.Second, 730 * day} { // in the middle, in which nobody heard of the node
		at := func(minute int) time.Time {
			when := trial.From().Add(time.Duration(minute) * time.Minute)
			if minute >= 1500 {
				return when.Add(gap)
			}
			return when
		}
		heard := 2999.0 // minutes
		if gap > 0 {
			heard--
		}
		track := trial.Track{Events: []fault.Fault{{Kind: fault.Stuck, Start: at(100), End: at(200)}, {Kind: fault.Spike, Start: at(1000), End: at(1001)}}}
		score := make([]float32, 3000)
		for i := range score {
			track.Readings = append(track.Readings, reading.Reading{Time: at(i)})
			switch i {
			case 10, 20, 110, 250, 2000, 2040: // an episode, found, afterwards, two episodes
				score[i] = 5
			}
		}
		tracks, scores := []trial.Track{track}, []trial.Scores{{Score: score}}
		o := trial.Measure(tracks, scores, 4, time.Time{})
		if o.Events != 2 || o.Caught != 1 || o.Delay() != 10*time.Minute || o.Within(10*time.Minute) != 0.5 || o.Within(10*time.Minute-1) != 0 || math.Abs(o.False-3*30*24*60/heard) > 1e-6 {
			t.Errorf("%v: %+v", gap, o)
		}
		if o := trial.Measure(tracks, scores, 4, at(500).Add(-time.Second)); o.Events != 1 || o.Caught != 0 || math.Abs(o.False-2*30*24*60/(heard-500+1.0/60)) > 1e-6 {
			t.Errorf("%v: from later on: %+v", gap, o)
		}
		area := trial.PRAUC(tracks, scores, time.Time{})
		must.Hold(t, area >= 0.02 && area <= 0.1, "%v: area %.3f", gap, area)
		must.Equal(t, "threshold, that of the most of its hours", 5.0, trial.Learned(tracks, scores, 30, at(2999)))
	}
}

// A warning is false where the limit, 3 °C above the day before, is not passed within half an hour.
func TestForecast(t *testing.T) {
	t.Parallel()
	now := trial.From().Add(day)
	for peak, want := range map[float64]float64{25.5: 0, 24.7: 15} { // °C; one false in two days
		var track trial.Track
		for at := trial.From(); at.Before(now.Add(2 * day)); at = at.Add(30 * time.Second) {
			rise := 0.2 * max(0, at.Sub(now.Add(day)).Minutes())
			track.Readings = append(track.Readings, reading.Reading{Time: at, Temperature: min(22+rise, peak), Humidity: 40})
		}
		f := trial.Forecast([]trial.Track{track}, now)
		must.Hold(t, math.Abs(f.False-want) <= 0.1, "a rise to %g °C: %+v", peak, f)
	}
}

// A person says what was wrong, or the contrary.
func TestJudge(t *testing.T) {
	t.Parallel()
	stuck := fault.Fault{Kind: fault.Stuck, Start: trial.From(), End: trial.From().Add(time.Hour)}
	tracks := []trial.Track{{Events: []fault.Fault{stuck}}}
	during, later := anomaly.Episode{Start: trial.From(), End: trial.From().Add(time.Minute)}, anomaly.Episode{Start: trial.From().Add(day), End: trial.From().Add(day)}
	for wrong, want := range map[float64]bool{0: true, 1: false} {
		if judge := trial.Judge(tracks, 1, wrong); judge(0, during) != want || judge(0, later) == want {
			t.Errorf("%g wrong: %v, %v", wrong, judge(0, during), judge(0, later))
		}
	}
}

// No seed is used for two things.
func TestSeedsAreApart(t *testing.T) {
	t.Parallel()
	all := slices.Concat(trial.TuningSeeds(), trial.TestSeeds(), []uint64{trial.ShippedSeed})
	slices.Sort(all)
	must.Equal(t, "seeds", slices.Compact(slices.Clone(all)), all)
}

// What happens to instruments and installations, of which no room knows, is a few incidents and
// no flood: at most three of the six nodes of a room within a day.
func TestFloods(t *testing.T) {
	t.Parallel()
	healthy, from := made(21, 3*day, day, nil)
	type change func(node, i int, r reading.Reading) (reading.Reading, bool)
	grid := func(step float64) change {
		return func(_, _ int, r reading.Reading) (reading.Reading, bool) {
			r.Temperature, r.Humidity = step*math.Round(r.Temperature/step), math.Round(r.Humidity/step)*step
			return r, true
		}
	}
	for name, change := range map[string]change{
		"nothing":                     func(_, _ int, r reading.Reading) (reading.Reading, bool) { return r, true },
		"firmware that rounds to 0.5": grid(0.5),
		"firmware that rounds to 1":   grid(1),
		"every third reading is sent": func(_, i int, r reading.Reading) (reading.Reading, bool) { return r, i%3 == 0 },
		"a third of the readings are lost": func(node, i int, r reading.Reading) (reading.Reading, bool) {
			return r, fault.Uniform(1, uint64(node), uint64(i)) > 1./3
		},
		"a clock seven minutes slow": func(_, _ int, r reading.Reading) (reading.Reading, bool) {
			r.Time = r.Time.Add(-7 * time.Minute)
			return r, !r.Time.Before(from)
		},
		"a new cycle of the compressor": func(_, _ int, r reading.Reading) (reading.Reading, bool) {
			r.Temperature += math.Round(7*math.Sin(2*math.Pi*float64(r.Time.Unix())/1500)) / 10
			return r, true
		},
		"an interval that changes each hour": func(_, i int, r reading.Reading) (reading.Reading, bool) {
			return r, i%[]int{1, 2, 5}[r.Time.Hour()%3] == 0
		},
		"three readings a day": func(_, i int, r reading.Reading) (reading.Reading, bool) { return r, i%480 == 0 },
		"a node in another room": func(node, _ int, r reading.Reading) (reading.Reading, bool) {
			if node == 0 {
				r.Temperature += 4
			}
			return r, true
		},
		"a month of silence": func(_, _ int, r reading.Reading) (reading.Reading, bool) {
			r.Time = r.Time.AddDate(0, 1, 0)
			return r, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracks := slices.Clone(healthy)
			for node := range tracks {
				var readings []reading.Reading
				for i, r := range tracks[node].Readings {
					sent := true
					if !r.Time.Before(from) {
						r, sent = change(node, i, r)
					}
					if sent {
						readings = append(readings, r)
					}
				}
				tracks[node].Readings = readings
			}
			scores, _ := trial.Replay(tracks, trial.Options{Tick: time.Minute})
			if found := trial.Compare(tracks, nil, scores, anomaly.Alarm(1), from); found.False > 3 {
				t.Errorf("%d incidents", found.False)
			}
		})
	}
}

// A room that loses its cooling after eight calm days, as in a demonstration, is told within two
// minutes, and before a limit of 32 °C, of nothing but that room.
func TestLostCoolingIsReportedWithinTwoMinutes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		lost := time.Date(2026, 3, 10, 9, 20, 0, 0, time.UTC)
		begin := lost.AddDate(0, 0, -8)
		s := site.New(site.Options{Seed: seed, Rooms: 3, PerRoom: 4})
		const warming = "room2"
		failure := fault.Fault{Kind: fault.Cooling, Room: warming, Start: lost, End: lost.Add(20 * time.Minute), Peak: 36, Constant: 30 * time.Minute}
		var tracks []trial.Track
		for i, p := range s.Places() {
			track := trial.Track{Node: p.Node, Room: p.Room}
			for k, row := range s.Series(i, begin, lost.Add(2*time.Minute), []fault.Fault{failure}) {
				if k%10 == 0 || lost.Sub(row.Time) < time.Hour { // the past is rarer
					track.Readings = append(track.Readings, reading.Reading{NodeID: p.Node, Time: row.Time, Temperature: row.Temperature, Humidity: row.Humidity})
				}
			}
			tracks = append(tracks, track)
		}
		scores, _ := trial.Replay(tracks, trial.Options{})
		coolest := math.Inf(1)
		for i, track := range tracks {
			for j, r := range track.Readings {
				if r.Time.Before(lost) || scores[i].By[j] == "" {
					continue
				}
				if coolest = min(coolest, r.Temperature); track.Room != warming {
					t.Errorf("seed %d: %s of %s", seed, scores[i].By[j], track.Node)
				}
				break
			}
		}
		must.Hold(t, coolest < 32, "seed %d: told at %.1f °C", seed, coolest)
	}
}

func readTracks(t *testing.T, text string) ([]trial.Track, int) {
	t.Helper()
	nodes, skipped, err := trial.ReadTracks(strings.NewReader(text))
	must.Do(t, err)
	return nodes, skipped
}

func TestReadTracks(t *testing.T) {
	t.Parallel()
	nodes, skipped := readTracks(t, `timestamp,temperature,node_id,humidity,label
2026-03-01T12:01:00Z,21,b,,1
2026-03-01T12:00:00Z,20,b,40,0
2026-03-01T12:00:00Z,25,b,41,1
2026-03-01T12:00:30Z,,b,40,0
2026-03-01T12:00:30Z,400,b,40,0
2026-03-01 12:00:00,20,a,40,
0001-01-01T00:00:00Z,20,a,40,
1999-12-31T23:59:59Z,20,a,40,
2100-01-01T00:00:00Z,20,a,40,
9999-12-31T23:59:59Z,20,c,40,
`)
	if skipped != 7 || len(nodes) != 2 {
		t.Fatalf("%d, %+v", skipped, nodes)
	}
	b := nodes[0]
	if b.Node != "b" || len(b.Readings) != 2 || b.Readings[0].Temperature != 20 || !math.IsNaN(b.Readings[1].Humidity) || b.Labels[0] || !b.Labels[1] {
		t.Errorf("%+v", b)
	}
	a := nodes[1]
	must.Hold(t, a.Labels == nil && a.Readings[0].Time.Equal(b.Readings[0].Time), "a node without labels: %+v", a)
	for _, bad := range []string{"", "node_id,timestamp,temperature\n", "node_id,temperature\na,1\n", "node_id,timestamp,temperature\na,noon,1\n"} {
		_, _, err := trial.ReadTracks(strings.NewReader(bad))
		must.Hold(t, err != nil, "%q is accepted", bad)
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	const series = "node_id,timestamp,temperature,label\na,2026-03-01T12:00:00Z,20,0\na,2026-03-01T12:01:00Z,20,"
	for want, words := range map[bool][]string{
		true:  {"1", "1.0", " 1"},
		false: {"0", "0.0", "", " 0", " "},
	} {
		for _, word := range words {
			nodes, _ := readTracks(t, series+word+"\n")
			must.Hold(t, nodes[0].Labels[1] == want, "%q is read as %v", word, !want)
		}
	}
	for _, word := range []string{"2", "-1", "NaN", "n", "ok", "score", "nonsense"} {
		_, _, err := trial.ReadTracks(strings.NewReader(series + word + "\n"))
		must.Hold(t, err != nil && strings.HasPrefix(err.Error(), "line 3: label \""+word+"\""), "%q: %v", word, err)
	}
	nodes, _ := readTracks(t, "node_id,timestamp,temperature,label\na,2026-03-01T12:00:00Z,20,\n")
	must.Hold(t, nodes[0].Labels == nil, "a node without labels is labelled")
}

func TestQuicken(t *testing.T) {
	t.Parallel()
	n := trial.Track{Readings: make([]reading.Reading, 100)}
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	every := func(interval time.Duration) {
		for i := range n.Readings {
			n.Readings[i].Time = begin.Add(time.Duration(i) * interval)
		}
	}
	every(time.Minute)
	if quick := n.Quickened(); n.Slow() || quick.Interval() != time.Minute {
		t.Errorf("a node that sends every minute was quickened to %v", quick.Interval())
	}
	every(time.Hour)
	if quick := n.Quickened(); !n.Slow() || quick.Interval() != 30*time.Second || n.Interval() != time.Hour {
		t.Errorf("quickened to %v, itself %v", quick.Interval(), n.Interval())
	}
}
