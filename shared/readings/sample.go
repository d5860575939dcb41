package readings

import (
	"iter"
	"time"

	"coldaisle.dev/shared/reading"
)

const (
	// stretch is the length of a stretch of consecutive readings: an hour, after an hour for
	// the windows of its first readings.
	stretch = 2 * time.Hour
	// stretchReadings is how many readings a node has in a stretch at one every 30 seconds.
	stretchReadings = int(stretch / (30 * time.Second))
	daySlots        = int(24 * time.Hour / stretch)
	week            = 7 * 24 * time.Hour
)

// Stretches chooses the ranges of a sample of at most rows readings: each node's visible
// spans, cut to stretches of two hours. They lie in one day of each week, on a different
// weekday each time, so that few days are scanned. Nodes have different hours, as many as
// the sample has room for. Equal arguments give equal results.
func Stretches(nodes []NodeRef, start, end time.Time, rows int) []NodeRef {
	weeks := int(end.Sub(start) / week)
	if len(nodes) == 0 || weeks == 0 {
		return nil
	}
	each := max(1, min(weeks*daySlots, rows/len(nodes)/stretchReadings))
	chosen := make([]NodeRef, len(nodes))
	for i, node := range nodes {
		chosen[i].ID = node.ID
		for j := range each {
			w := (i + j) % weeks
			day := end.Add(-time.Duration(w+1) * week).Add(time.Duration(w*3%7) * 24 * time.Hour).Truncate(24 * time.Hour)
			from := day.Add(time.Duration((i*5+w*7+j/weeks*5)%daySlots) * stretch)
			for _, span := range node.Visible {
				part := reading.Span{Channel: span.Channel, From: reading.Later(reading.Later(from, start), span.From), Until: from.Add(stretch)}
				if !span.Until.IsZero() {
					part.Until = reading.Earlier(part.Until, span.Until)
				}
				if part.From.Before(part.Until) {
					chosen[i].Visible = append(chosen[i].Visible, part)
				}
			}
		}
	}
	return chosen
}

// AtMost yields at most each readings of every node id. The readings come node after node.
func AtMost(all iter.Seq2[reading.Reading, error], each int) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		var node string
		seen := 0
		for r, err := range all {
			if r.NodeID != node {
				node, seen = r.NodeID, 0
			}
			seen++
			if (err != nil || seen <= each) && !yield(r, err) {
				return
			}
		}
	}
}
