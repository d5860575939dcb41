package forest

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/parallel"
)

// Isolation is an isolation forest. Its methods may be called from many goroutines.
//
// It differs from Liu et al. in one point, which scikit-learn shares: a split draws its feature among those
// that are not constant in the node, so that a tree spends no levels on splits that separate nothing.
type Isolation struct {
	trees // whose values are expected path lengths

	sample int // rows per tree
}

// GrowIsolation grows an isolation forest of so many trees, 100 in the paper, each from a sample of the
// rows, two or more, that is drawn without replacement: 256 in the paper.
func GrowIsolation(rows [][]float64, count, sample int, seed uint64) *Isolation {
	sample = min(sample, len(rows))
	return &Isolation{sample: sample, trees: grow(len(rows[0]), count, seed, func(g grower) trees {
		// The height of a balanced tree is the paper's limit: a longer path says no more about
		// how anomalous a row is.
		tree := isolationGrower{g, bits.Len(uint(sample - 1))}
		tree.grow(tree.root(), draw(g.random, rows, sample), 0)
		return tree.trees
	})}
}

// Score says how anomalous a row is, between 0 and 1: about 0.5 for an ordinary one, near 1 for
// one that a few splits isolate. It is the paper's 2^(-E(h)/c(ψ)), and allocates nothing.
func (f *Isolation) Score(row []float64) float64 {
	return math.Exp(-math.Ln2 * f.sum(row) / float64(len(f.roots)) / averagePath(f.sample))
}

// ScoreAll scores every row.
func (f *Isolation) ScoreAll(rows [][]float64) []float64 {
	scores := make([]float64, len(rows))
	parallel.For(len(scores), func(i int) { scores[i] = f.Score(rows[i]) })
	return scores
}

// Append appends the form that [ReadIsolation] reads.
func (f *Isolation) Append(b []byte) []byte {
	return f.trees.Append(artifact.Append(b, uint32(f.sample))) //nolint:gosec // a few thousand
}

// ReadIsolation reads what [Isolation.Append] wrote, of so many columns.
func ReadIsolation(r *artifact.Reader, columns int) *Isolation {
	sample := artifact.Read[uint32](r)
	if sample < 2 {
		r.Fail("trees of %d rows", sample)
	}
	return &Isolation{sample: int(sample), trees: readTrees(r, columns, 0)}
}

// isolationGrower grows one tree.
type isolationGrower struct {
	grower

	levels int // splits from root to leaf at most
}

// draw draws k rows without replacement by Floyd's method, whose cost does not depend on how many there are.
func draw(random *rand.Rand, rows [][]float64, k int) (drawn [][]float64) {
	taken := make(map[int]bool, k)
	for j := len(rows) - k; j < len(rows); j++ {
		i := random.IntN(j + 1)
		if taken[i] {
			i = j
		}
		taken[i] = true
		drawn = append(drawn, rows[i])
	}
	return drawn
}

// grow turns a node into a split of its rows, or into a leaf when they cannot
// be told apart or the tree is high enough.
func (g *isolationGrower) grow(at int, members [][]float64, level int) {
	feature, threshold, ok := g.choose(members)
	if level == g.levels || !ok {
		g.leaf(at, float32(float64(level)+averagePath(len(members))))
		return
	}
	left := 0
	for i, row := range members {
		if row[feature] <= threshold {
			members[i], members[left] = members[left], row
			left++
		}
	}
	child := g.split(at, feature, threshold)
	g.grow(child, members[:left], level+1)
	g.grow(child+1, members[left:], level+1)
}

// choose draws a feature that is not constant among the members, and a
// threshold between its least and its greatest value, the greatest excluded.
func (g *isolationGrower) choose(members [][]float64) (feature int, threshold float64, ok bool) {
	if len(members) < 2 {
		return 0, 0, false
	}
	for i := len(g.order); i > 0; i-- {
		j := g.random.IntN(i)
		g.order[i-1], g.order[j] = g.order[j], g.order[i-1]
		feature := g.order[i-1]
		low, high := math.Inf(1), math.Inf(-1)
		for _, row := range members {
			low, high = min(low, row[feature]), max(high, row[feature])
		}
		if low < high {
			threshold := low + g.random.Float64()*(high-low)
			if threshold >= high { // rounding, or a range beyond what a float64 holds
				threshold = low
			}
			return feature, threshold, true
		}
	}
	return 0, 0, false
}

// averagePath is c(n) of the paper: the mean length of an unsuccessful search
// in a binary search tree of n rows.
func averagePath(n int) float64 {
	const eulerMascheroni = 0.57721566490153286
	switch {
	case n <= 1:
		return 0
	case n == 2:
		return 1
	default:
		m := float64(n - 1)
		return 2*(math.Log(m)+eulerMascheroni) - 2*m/float64(n)
	}
}
