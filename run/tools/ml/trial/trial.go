// Package trial plays readings to the detection of anomalies as production would, and
// compares what it says with what was wrong.
package trial

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/reading"
)

// Track is a node with its readings, oldest first, and what was wrong with it.
type Track struct {
	Node, Room string
	Readings   []reading.Reading
	Events     []fault.Fault // by their start; those of the whole room too
}

// Options say how a trial goes.
type Options struct {
	Single bool          // no node knows another
	Frozen time.Time     // no calibration after that; zero: one each day
	Tick   time.Duration // of what is known of neighbours; 0 means 30 s
	// Judge is asked once of each episode at a budget of 1 what a person says: true for
	// right. Nil: nobody says anything.
	Judge func(track int, e anomaly.Episode) (right bool)
}

// Scores are what a detector says of the readings of a track.
type Scores struct {
	Score []float32
	By    []anomaly.Statistic // of alarms at a budget of 1
	// Episodes are those at a budget of 1, by their start.
	Episodes []anomaly.Episode
}

// node is one on its way.
type node struct {
	anomaly.Live

	track  Track
	next   int
	window func() (int, reading.Window, bool)
	stop   func()
	slots  []float32 // temperatures, from the first slot
	hours  []hourOf
	scores Scores

	neighbours []*anomaly.Live
	around     anomaly.Surroundings

	episodes []anomaly.Episode // at a budget of 1
	judged   int               // of them
	right    []anomaly.Episode
}

type hourOf struct {
	at time.Time
	anomaly.Hour
}

// Replay plays tracks, with a calibration at each midnight of what came before.
// Where ctx ends it stops early: ask ctx.Err() before what it says is used.
func Replay(ctx context.Context, tracks []Track, o Options) ([]Scores, *anomaly.Calibration) {
	if o.Tick == 0 {
		o.Tick = 30 * time.Second
	}
	nodes := make([]*node, len(tracks))
	begin, end := time.Time{}, time.Time{}
	for i, t := range tracks {
		nodes[i] = &node{track: t}
		nodes[i].scores = Scores{Score: make([]float32, len(t.Readings)), By: make([]anomaly.Statistic, len(t.Readings))}
		nodes[i].window, nodes[i].stop = iter.Pull2(features.Windows(t.Readings))
		defer nodes[i].stop()
		if first := t.Readings[0].Time; begin.IsZero() || first.Before(begin) {
			begin = first
		}
		if last := t.Readings[len(t.Readings)-1].Time; last.After(end) {
			end = last
		}
	}
	firstSlot := anomaly.SlotOf(begin)
	calibration := anomaly.Calibrate(nil)
	chooseNeighbours(nodes, o.Single)
	midnight := begin.Truncate(24 * time.Hour).Add(24 * time.Hour)
	for now := begin.Truncate(o.Tick); ctx.Err() == nil && !now.After(end); now = now.Add(o.Tick) {
		if !now.Before(midnight) {
			midnight = midnight.Add(24 * time.Hour)
			if o.Frozen.IsZero() || !now.After(o.Frozen) {
				calibration = anomaly.Calibrate(past(nodes, now, o.Judge))
				chooseNeighbours(nodes, o.Single)
			}
		}
		for _, n := range nodes { // all before any hears more
			n.around = n.Around(now, n.neighbours)
		}
		for _, n := range nodes {
			n.advance(now.Add(o.Tick), firstSlot, calibration)
		}
	}
	scores := make([]Scores, len(nodes))
	for i, n := range nodes {
		scores[i] = n.scores
		scores[i].Episodes = n.episodes
	}
	return scores, calibration
}

// advance judges the readings before a time.
func (n *node) advance(until time.Time, firstSlot int64, c *anomaly.Calibration) {
	for n.next < len(n.track.Readings) && n.track.Readings[n.next].Time.Before(until) {
		r := n.track.Readings[n.next]
		_, w, _ := n.window()
		v := anomaly.Statistics(w, r, &n.Day, n.around)
		score := c.Score(n.track.Node, n.track.Room, v)
		n.scores.Score[n.next] = float32(score)
		if score > anomaly.Alarm(1) {
			reason := c.Explain(n.track.Node, n.track.Room, r, v)
			n.scores.By[n.next] = reason.Statistic
			if last := len(n.episodes) - 1; last < 0 || !n.episodes[last].Extend(r.Time, reason) {
				n.episodes = append(n.episodes, anomaly.Begin(r.Time, reason))
			}
		}
		at := r.Time.Truncate(time.Hour)
		if len(n.hours) == 0 || !n.hours[len(n.hours)-1].at.Equal(at) {
			n.hours = append(n.hours, hourOf{at, anomaly.Quiet()})
		}
		n.hours[len(n.hours)-1].Add(v)
		n.Hear(r)
		slot := anomaly.SlotOf(r.Time)
		for int64(len(n.slots)) <= slot-firstSlot {
			n.slots = append(n.slots, float32(math.NaN()))
		}
		n.slots[slot-firstSlot] = float32(r.Temperature)
		n.next++
	}
}

func past(nodes []*node, now time.Time, judge func(int, anomaly.Episode) bool) []anomaly.NodeHours {
	all := make([]anomaly.NodeHours, len(nodes))
	for i, n := range nodes {
		all[i] = anomaly.NodeHours{Node: n.track.Node, Room: n.track.Room}
		for len(n.hours) > 0 && now.Sub(n.hours[0].at) > anomaly.Hours*time.Hour {
			n.hours = n.hours[1:]
		}
		for ; judge != nil && n.judged < len(n.episodes) && now.Sub(n.episodes[n.judged].End) > anomaly.Joined; n.judged++ {
			if e := n.episodes[n.judged]; judge(i, e) {
				n.right = append(n.right, e)
			}
		}
		at := make([]time.Time, len(n.hours))
		for j, h := range n.hours {
			at[j] = h.at
		}
		for j, healthy := range anomaly.Healthy(at, n.right) {
			if healthy {
				all[i].Hours = append(all[i].Hours, n.hours[j].Hour)
			}
		}
	}
	return all
}

func chooseNeighbours(nodes []*node, single bool) {
	if single {
		return
	}
	longest := 0
	for _, n := range nodes {
		longest = max(longest, len(n.slots))
	}
	placed := make([]anomaly.Placed, len(nodes))
	for i, n := range nodes {
		slots := slices.Clone(n.slots)
		for len(slots) < longest {
			slots = append(slots, float32(math.NaN()))
		}
		placed[i] = anomaly.Placed{Node: n.track.Node, Room: n.track.Room, Slots: slots}
	}
	for i, chosen := range anomaly.Neighbours(placed) {
		nodes[i].neighbours = nil
		for _, other := range chosen {
			nodes[i].neighbours = append(nodes[i].neighbours, &nodes[other].Live)
		}
	}
}
