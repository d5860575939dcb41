// Package trial replays readings through anomaly detection as production runs it, and
// compares the alarms with the faults.
package trial

import (
	"cmp"
	"context"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
)

// Track is a node with its readings, oldest first, and what was wrong with it.
type Track struct {
	Node, Room string
	Readings   []reading.Reading
	Events     []fault.Fault // by their start; those of the whole room too
}

// Options are the conditions of a replay.
type Options struct {
	Single bool          // nodes have no neighbours
	Frozen time.Time     // no calibration after that; zero: one each day
	Tick   time.Duration // interval at which neighbours are refreshed; 0 means 30 s
	// Judge gives a person's verdict on each episode at a budget of 1, true for right. Nil: no
	// verdicts.
	Judge func(track int, e anomaly.Episode) (right bool)
}

// Scores are a detector's scores of the readings of a track.
type Scores struct {
	Score []float32
	By    []anomaly.Statistic // of alarms at a budget of 1
	// Episodes are those at a budget of 1, by their start.
	Episodes []anomaly.Episode
}

// node is a track that is played.
type node struct {
	anomaly.Player

	track  Track
	hours  []anomaly.PastHour
	scores Scores

	neighbours []*anomaly.Live
	around     anomaly.Surroundings

	judged int // of the episodes
	right  []anomaly.Episode
}

// Span is the times of the first and of the last reading.
func Span(tracks []Track) (first, last time.Time) {
	for i, t := range tracks {
		if at := t.Readings[0].Time; i == 0 || at.Before(first) {
			first = at
		}
		if at := t.Readings[len(t.Readings)-1].Time; at.After(last) {
			last = at
		}
	}
	return first, last
}

// Replay plays tracks, with a calibration at each midnight of what came before.
// When ctx ends it stops early: ask ctx.Err() before the result is used.
func Replay(ctx context.Context, tracks []Track, o Options) ([]Scores, *anomaly.Calibration) {
	o.Tick = cmp.Or(o.Tick, 30*time.Second)
	nodes := make([]*node, len(tracks))
	for i, t := range tracks {
		player, stop := anomaly.NewPlayer(t.Readings)
		defer stop()
		nodes[i] = &node{Player: player, track: t}
		nodes[i].scores = Scores{Score: make([]float32, len(t.Readings)), By: make([]anomaly.Statistic, len(t.Readings))}
	}
	begin, end := Span(tracks)
	calibration := anomaly.Calibrate(nil)
	chooseNeighbours(nodes, o.Single, begin, begin)
	midnight := begin.Truncate(24 * time.Hour).Add(24 * time.Hour)
	for now := begin.Truncate(o.Tick); ctx.Err() == nil && !now.After(end); now = now.Add(o.Tick) {
		if !now.Before(midnight) {
			midnight = midnight.Add(24 * time.Hour)
			if o.Frozen.IsZero() || !now.After(o.Frozen) {
				calibration = anomaly.Calibrate(past(nodes, now, o.Judge))
				chooseNeighbours(nodes, o.Single, begin, now)
			}
		}
		for _, n := range nodes { // all before any hears more
			n.around = n.Around(now, n.neighbours)
		}
		for _, n := range nodes {
			n.Play(now.Add(o.Tick), func(w reading.Window, r reading.Reading) { n.judge(w, r, calibration) })
		}
	}
	scores := make([]Scores, len(nodes))
	for i, n := range nodes {
		scores[i] = n.scores
	}
	return scores, calibration
}

func (n *node) judge(w reading.Window, r reading.Reading, c *anomaly.Calibration) {
	v := anomaly.Statistics(w, r, &n.Day, n.around)
	score := c.Score(n.track.Node, n.track.Room, v)
	n.scores.Score[n.Next] = float32(score)
	if score > anomaly.Alarm(1) {
		reason := c.Explain(n.track.Node, n.track.Room, r, v)
		n.scores.By[n.Next] = reason.Statistic
		if last := len(n.scores.Episodes) - 1; last < 0 || !n.scores.Episodes[last].Extend(r.Time, reason) {
			n.scores.Episodes = append(n.scores.Episodes, anomaly.Begin(r.Time, reason))
		}
	}
	at := r.Time.Truncate(time.Hour)
	if len(n.hours) == 0 || !n.hours[len(n.hours)-1].Start.Equal(at) {
		n.hours = append(n.hours, anomaly.PastHour{Start: at, Hour: anomaly.Quiet()})
	}
	n.hours[len(n.hours)-1].Add(v)
}

func past(nodes []*node, now time.Time, judge func(int, anomaly.Episode) bool) []anomaly.NodeHours {
	all := make([]anomaly.NodeHours, len(nodes))
	for i, n := range nodes {
		for len(n.hours) > 0 && now.Sub(n.hours[0].Start) > anomaly.Hours*time.Hour {
			n.hours = n.hours[1:]
		}
		episodes := n.scores.Episodes
		for ; judge != nil && n.judged < len(episodes) && now.Sub(episodes[n.judged].End) > anomaly.Joined; n.judged++ {
			if e := episodes[n.judged]; judge(i, e) {
				n.right = append(n.right, e)
			}
		}
		all[i] = anomaly.NodeHours{Node: n.track.Node, Room: n.track.Room, Hours: anomaly.Healthy(n.hours, n.right)}
	}
	return all
}

// chooseNeighbours finds neighbours by the last two days.
func chooseNeighbours(nodes []*node, single bool, begin, now time.Time) {
	if single {
		return
	}
	until := anomaly.SlotOf(now)
	from := max(anomaly.SlotOf(begin), until-int64(48*time.Hour/anomaly.SlotWidth))
	placed := make([]anomaly.Placed, len(nodes))
	for i, n := range nodes {
		placed[i] = anomaly.Placed{Room: n.track.Room, Slots: anomaly.Temperatures(n.Readings[:n.Next], from, until)}
	}
	for i, chosen := range anomaly.Neighbours(placed) {
		nodes[i].neighbours = nil
		for _, other := range chosen {
			nodes[i].neighbours = append(nodes[i].neighbours, &nodes[other].Live)
		}
	}
}
