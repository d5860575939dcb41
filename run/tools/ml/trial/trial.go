// Package trial replays readings through anomaly detection as production runs it, and
// compares the alarms with the faults.
package trial

import (
	"cmp"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
)

// Track is a node with its readings, oldest first, and what was wrong with it.
type Track struct {
	Node, Room string
	Readings   []reading.Reading
	Events     []fault.Fault // those of the whole room too
	Labels     []bool        // of a recording, whether a reading is anomalous; nil where it does not say
}

// Options are the conditions of a replay.
type Options struct {
	Single bool          // nodes have no neighbours
	Frozen time.Time     // no calibration after that; zero: one each day
	Tick   time.Duration // interval at which neighbours are refreshed; 0 means 30 s
	// Judge gives a person's verdict on each episode at a budget of 1, true for right. Nil: no verdicts.
	Judge func(track int, e anomaly.Episode) (right bool)
}

// Scores are a detector's scores of the readings of a track.
type Scores struct {
	Score []float32
	By    []string // statistic or cause of the cooling path, of alarms at a budget of 4
	// Episodes are those at a budget of 1, by their start.
	Episodes []anomaly.Episode
}

// by is the reason of an alarm; empty for a detector that gives none.
func (s Scores) by(i int) string {
	if s.By == nil {
		return ""
	}
	return s.By[i]
}

// extended returns episodes with one more alarm.
func extended(episodes []anomaly.Episode, at time.Time) []anomaly.Episode {
	if last := len(episodes) - 1; last >= 0 && !at.After(episodes[last].End.Add(anomaly.Joined)) {
		episodes[last].End = at
		return episodes
	}
	return append(episodes, anomaly.Episode{Start: at, End: at})
}

// node is a track that is played.
type node struct {
	anomaly.Player

	track  Track
	hours  []anomaly.PastHour
	scores Scores

	neighbours []*anomaly.Live
	around     anomaly.Surroundings
	air        []anomaly.Climate
	room       *room

	judged int // of the episodes
	right  []anomaly.Episode
}

// room is what the nodes of a room do together.
type room struct {
	nodes []*anomaly.Live
	now   anomaly.Moves
	heard int
	air   []anomaly.Climate
}

// Span is the times of the first and of the last reading.
func Span(tracks []Track) (first, last time.Time) {
	first = tracks[0].Readings[0].Time
	for _, t := range tracks {
		first = reading.Earlier(first, t.Readings[0].Time)
		last = reading.Later(last, t.Readings[len(t.Readings)-1].Time)
	}
	return first, last
}

// Replay plays tracks, with a calibration at each midnight of what came before.
func Replay(tracks []Track, o Options) ([]Scores, *anomaly.Calibration) {
	o.Tick = cmp.Or(o.Tick, 30*time.Second)
	nodes, rooms := make([]*node, len(tracks)), map[string]*room{}
	for i, t := range tracks {
		if o.Single {
			t.Room = t.Node
		}
		if rooms[t.Room] == nil {
			rooms[t.Room] = &room{}
		}
		player, stop := anomaly.NewPlayer(t.Readings)
		defer stop()
		n := &node{Player: player, track: t, room: rooms[t.Room]}
		n.scores = Scores{Score: make([]float32, len(t.Readings)), By: make([]string, len(t.Readings))}
		n.room.nodes, nodes[i] = append(n.room.nodes, &n.Live), n
	}
	begin, end := Span(tracks)
	calibration := anomaly.Calibrate(nil)
	chooseNeighbours(nodes, o.Single, begin, begin)
	midnight := begin.Truncate(24 * time.Hour).Add(24 * time.Hour)
	for now := begin.Truncate(o.Tick); !now.After(end); now = now.Add(o.Tick) {
		if !now.Before(midnight) {
			midnight = midnight.Add(24 * time.Hour)
			if o.Frozen.IsZero() || !now.After(o.Frozen) {
				calibration = anomaly.Calibrate(append(past(nodes, now, o.Judge), airs(rooms)...))
				chooseNeighbours(nodes, o.Single, begin, now)
			}
		}
		for _, n := range nodes { // all before any hears more
			n.around = n.Around(now, n.neighbours)
		}
		for _, r := range rooms {
			r.now, r.heard = anomaly.Together(now, r.nodes)
			r.air = add(r.air, now, r.now)
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

// add includes changes in the hour of a time.
func add(air []anomaly.Climate, at time.Time, m anomaly.Moves) []anomaly.Climate {
	if at = at.UTC().Truncate(time.Hour); len(air) == 0 || air[len(air)-1].Start.Before(at) {
		air = append(air, anomaly.Unheard(at))
	}
	air[len(air)-1].Add(m)
	return air
}

// airs are the last four weeks of rooms.
func airs(rooms map[string]*room) (all []anomaly.NodeHours) {
	for name, r := range rooms {
		all = append(all, anomaly.NodeHours{Room: name, Air: r.air[max(0, len(r.air)-anomaly.Hours):]})
	}
	return all
}

func (n *node) judge(w reading.Window, r reading.Reading, c *anomaly.Calibration) {
	v := anomaly.Statistics(w, r, &n.Day, n.around)
	all := v
	anew := c.Anew(n.track.Node, &n.Live, w, r, &v)
	score := c.Score(n.track.Node, n.track.Room, r.Time, v)
	n.air = add(n.air, r.Time, n.Move(w, r).Apart(n.room.now))
	told, cooling := n.Cooling(c, n.track.Node, n.track.Room, r.Time, n.room.now, n.room.heard)
	if cooling || anew {
		score = max(score, anomaly.CoolingScore)
	}
	n.scores.Score[n.Next] = float32(score)
	if score > anomaly.Alarm(4) {
		n.scores.By[n.Next] = c.Explain(n.track.Node, n.track.Room, r, v).Statistic.String()
		switch {
		case cooling:
			n.scores.By[n.Next] = told.Cause
		case anew:
			n.scores.By[n.Next] = "digits"
		}
	}
	if score > anomaly.Alarm(1) {
		n.scores.Episodes = extended(n.scores.Episodes, r.Time)
	}
	at := r.Time.Truncate(time.Hour)
	if len(n.hours) == 0 || !n.hours[len(n.hours)-1].Start.Equal(at) {
		n.hours = append(n.hours, anomaly.PastHour{Start: at, Hour: anomaly.Quiet()})
	}
	n.hours[len(n.hours)-1].Add(all)
	n.hours[len(n.hours)-1].Instrument = n.Instrument(w, r)
}

// past is what the calibration is made of: the current hour, which has hardly begun, counts too.
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
		all[i] = anomaly.NodeHours{Node: n.track.Node, Room: n.track.Room, Air: n.air[max(0, len(n.air)-anomaly.Hours):]}
		all[i].Hours, all[i].At, all[i].Instrument = anomaly.Healthy(n.hours, n.right)
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
