package anomaly

import (
	"math"
	"slices"

	"coldaisle.dev/shared/portable"
)

// Novelty scores a single long series of which nothing else is known, such as a file:
// how far a value is from every value seen before. It is not for the readings of nodes,
// which have a day and neighbours. The zero value is ready.
type Novelty struct {
	seen   []float64         // ascending, without the last few
	recent []float64         // those
	steps  []float64         // ascending sizes
	told   [deadTime]float64 // the last scores
	last   float64
	count  int
}

const (
	// unlearned is how many readings pass before a value counts as seen: a new level is
	// news for so long.
	unlearned = 20
	// deadTime is for how many readings a score silences all that are no larger: what goes
	// on is told once.
	deadTime = 100
)

// Add scores the next value, from 0 for one seen before to 1 for one that is farther from
// all than they are from each other.
func (n *Novelty) Add(value float64) float64 {
	score := n.score(value)
	if score <= slices.Max(n.told[:]) {
		score = 0
	}
	n.told[n.count%deadTime] = score
	if n.count > 0 {
		insert(&n.steps, math.Abs(value-n.last))
	}
	n.last = value
	n.count++
	n.recent = append(n.recent, value)
	if len(n.recent) > unlearned {
		insert(&n.seen, n.recent[0])
		n.recent = n.recent[1:]
	}
	return score
}

func (n *Novelty) score(value float64) float64 {
	if len(n.seen) < 2 {
		return 0
	}
	spread := n.seen[len(n.seen)-1] - n.seen[0]
	at, found := slices.BinarySearch(n.seen, value)
	distance := math.Inf(1)
	if found {
		distance = 0
	}
	if at < len(n.seen) {
		distance = min(distance, n.seen[at]-value)
	}
	if at > 0 {
		distance = min(distance, value-n.seen[at-1])
	}
	score := 0.0
	if spread > 0 {
		score = distance / spread
	} else if distance > 0 {
		score = 1
	}
	step := math.Abs(value - n.last)
	rank, _ := slices.BinarySearch(n.steps, step)
	rarity := float64(len(n.steps)-rank+1) / float64(len(n.steps)+1)
	score += float64(0.01 * -portable.Log(rarity) / math.Ln10)
	return min(1, score)
}

func insert(ascending *[]float64, value float64) {
	at, _ := slices.BinarySearch(*ascending, value)
	*ascending = slices.Insert(*ascending, at, value)
}
