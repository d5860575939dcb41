package forest

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
)

// IsolationOptions say how an isolation forest is grown.
type IsolationOptions struct {
	Trees  int // 100 in the paper
	Sample int // rows per tree, drawn without replacement; 256 in the paper
	Seed   uint64
}

// The largest forest that artifacts may hold.
const (
	maxTrees  = 1 << 12
	maxSample = 1 << 16
)

// isolationNode is a split or a leaf. The right child of a split follows its left
// child. In a leaf, left is the leaf itself and no number exceeds the threshold, so
// that a walk stays there.
type isolationNode struct {
	threshold float64
	left      uint32
	feature   uint32
}

// Isolation is an isolation forest. Its methods may be called from many
// goroutines.
//
// It differs from Liu et al. in one point, which scikit-learn shares: a split
// draws its feature among those that are not constant in the node, so that a
// tree spends no levels on splits that separate nothing.
type Isolation struct {
	columns int
	sample  int // rows per tree
	levels  int // splits from root to leaf at most
	roots   []uint32
	nodes   []isolationNode
	paths   []float32 // expected path length at each leaf
}

// Columns is how many features a row has.
func (f *Isolation) Columns() int { return f.columns }

// GrowIsolation grows an isolation forest from finite numbers.
func GrowIsolation(rows Matrix, o IsolationOptions) (*Isolation, error) {
	if err := rows.validate(); err != nil {
		return nil, err
	}
	if o.Trees < 1 || o.Trees > maxTrees || o.Sample < 2 || o.Sample > maxSample {
		return nil, fmt.Errorf("%w: %d trees of %d rows", ErrTraining, o.Trees, o.Sample)
	}
	sample := min(o.Sample, rows.Rows())
	f := &Isolation{columns: rows.Columns, sample: sample, levels: levelsOf(sample)}
	trees := make([][]isolationNode, o.Trees)
	paths := make([][]float32, o.Trees)
	parallelFor(o.Trees, func(tree int) {
		g := isolationGrower{rows: rows, random: treeRand(o.Seed, tree), levels: f.levels}
		g.grow(sample)
		trees[tree], paths[tree] = g.nodes, g.paths
	})
	total := 0
	for _, nodes := range trees {
		total += len(nodes)
	}
	f.nodes, f.paths = make([]isolationNode, 0, total), make([]float32, 0, total)
	for tree, nodes := range trees {
		root := uint32(len(f.nodes)) //nolint:gosec // at most 2^12 trees of 2^17 nodes
		f.roots = append(f.roots, root)
		for _, n := range nodes {
			n.left += root
			f.nodes = append(f.nodes, n)
		}
		f.paths = append(f.paths, paths[tree]...)
	}
	return f, nil
}

// levelsOf is the height of a balanced tree of so many rows: the paper's limit,
// beyond which a path says no more about how strange a row is.
func levelsOf(sample int) int { return bits.Len(uint(max(sample-1, 1))) }

// isolationGrower grows one tree.
type isolationGrower struct {
	rows   Matrix
	random *rand.Rand
	levels int
	nodes  []isolationNode
	paths  []float32
	order  []int32 // features, reshuffled at each split
}

func (g *isolationGrower) grow(sample int) {
	g.nodes = make([]isolationNode, 1, 2*sample)
	g.paths = make([]float32, 1, 2*sample)
	g.order = make([]int32, g.rows.Columns)
	for i := range g.order {
		g.order[i] = int32(i)
	}
	g.split(0, draw(g.random, g.rows.Rows(), sample), 0)
}

// draw takes k of the numbers below n without replacement, by Floyd's method:
// its cost does not depend on n.
func draw(random *rand.Rand, n, k int) []int {
	taken := make(map[int]struct{}, k)
	drawn := make([]int, 0, k)
	for j := n - k; j < n; j++ {
		i := random.IntN(j + 1)
		if _, twice := taken[i]; twice {
			i = j
		}
		taken[i] = struct{}{}
		drawn = append(drawn, i)
	}
	return drawn
}

// split turns a node into a split of its rows, or into a leaf when they cannot
// be told apart or the tree is high enough.
func (g *isolationGrower) split(node int, members []int, level int) {
	feature, threshold, ok := g.choose(members)
	if level == g.levels || !ok {
		g.nodes[node] = isolationNode{threshold: math.Inf(1), left: uint32(node)} //nolint:gosec // below 2^17
		g.paths[node] = float32(float64(level) + averagePath(len(members)))
		return
	}
	left := 0
	for i, row := range members {
		if g.rows.Data[row*g.rows.Columns+feature] <= threshold {
			members[i], members[left] = members[left], row
			left++
		}
	}
	child := len(g.nodes)
	g.nodes[node] = isolationNode{threshold: threshold, left: uint32(child), feature: uint32(feature)} //nolint:gosec // below 2^17
	g.nodes = append(g.nodes, isolationNode{}, isolationNode{})
	g.paths = append(g.paths, 0, 0)
	g.split(child, members[:left], level+1)
	g.split(child+1, members[left:], level+1)
}

// choose draws a feature that is not constant among the members, and a
// threshold between its least and its greatest value, the greatest excluded.
func (g *isolationGrower) choose(members []int) (feature int, threshold float64, ok bool) {
	if len(members) < 2 {
		return 0, 0, false
	}
	for i := len(g.order); i > 0; i-- {
		j := g.random.IntN(i)
		g.order[i-1], g.order[j] = g.order[j], g.order[i-1]
		feature := int(g.order[i-1])
		low, high := math.Inf(1), math.Inf(-1)
		for _, row := range members {
			v := g.rows.Data[row*g.rows.Columns+feature]
			low, high = min(low, v), max(high, v)
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
