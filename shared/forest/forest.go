// Package forest holds the two tree ensembles of Coldaisle: the isolation forest (Liu, Ting and Zhou,
// "Isolation Forest", ICDM 2008), which scores how anomalous a row of numbers is, and the random forest
// regressor (Breiman, "Random Forests", Machine Learning 45, 2001), which predicts a number.
//
// It knows nothing of readings; shared/learn builds the detector and the forecaster from it. Rows are of
// equally many finite numbers, at most 255, because an artifact stores the number of a node's feature in a
// byte. Both forests are made for two cores and a short run: trees are flat arrays of small nodes, and are
// grown in parallel; several are walked at a time. Each tree has a random source of its own, seeded by the
// forest's seed and the tree's number, and sums have a fixed order: the same rows, options and seed give the
// same forest, bit for bit, on any number of cores.
package forest

import (
	"math"
	"math/rand/v2"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/parallel"
)

// node is a split or a leaf. The right child of a split follows its left child. In a leaf, left
// is the leaf itself and no number exceeds the threshold, so that a walk stays there.
type node struct {
	threshold float64
	left      uint32
	feature   uint32
}

// trees holds the trees of a forest in flat arrays.
type trees struct {
	columns int
	roots   []uint32
	nodes   []node
	values  []float32 // of the leaves
}

// grower grows one tree, with a random source of its own.
type grower struct {
	trees

	random *rand.Rand
	order  []int // features, reshuffled at each split
}

// grow grows trees in parallel.
func grow(columns, count int, seed uint64, tree func(g grower) trees) trees {
	grown := make([]trees, count)
	parallel.For(count, func(i int) {
		g := grower{trees{columns: columns}, rand.New(rand.NewPCG(seed, uint64(i)^0x9e3779b97f4a7c15)), nil} //nolint:gosec // no secret
		for feature := range columns {
			g.order = append(g.order, feature)
		}
		grown[i] = tree(g)
	})
	f := trees{columns: columns}
	for _, t := range grown {
		root := uint32(len(f.nodes)) //nolint:gosec // hundreds of trees, of fewer nodes than twice the rows
		f.roots = append(f.roots, root)
		for _, n := range t.nodes {
			n.left += root
			f.nodes = append(f.nodes, n)
		}
		f.values = append(f.values, t.values...)
	}
	return f
}

// root begins a tree.
func (f *trees) root() int {
	at := len(f.nodes)
	f.roots = append(f.roots, uint32(at)) //nolint:gosec // as above
	f.nodes, f.values = append(f.nodes, node{}), append(f.values, 0)
	return at
}

// leaf makes a node a leaf.
func (f *trees) leaf(at int, value float32) {
	f.nodes[at] = node{threshold: math.Inf(1), left: uint32(at)} //nolint:gosec // as above
	f.values[at] = value
}

// split makes a node a split and returns its left child.
func (f *trees) split(at, feature int, threshold float64) (left int) {
	left = len(f.nodes)
	f.nodes[at] = node{threshold: threshold, left: uint32(left), feature: uint32(feature)} //nolint:gosec // as above; at most 255
	f.nodes, f.values = append(f.nodes, node{}, node{}), append(f.values, 0, 0)
	return left
}

// interleave is the number of trees walked at the same time. A single walk waits for
// memory at every step; several keep the processor busy. Their variables are written out
// below, because an array of them would be kept in memory and not in registers.
const interleave = 4

// sum is the sum of the trees' values for a row.
func (f *trees) sum(row []float64) (sum float64) {
	row = row[:f.columns]
	nodes, values, roots := f.nodes, f.values, f.roots
	for ; len(roots) >= interleave; roots = roots[interleave:] {
		a, b, c, d := roots[0], roots[1], roots[2], roots[3]
		for moved := true; moved; {
			i, j, k, l := nodes[a].step(row), nodes[b].step(row), nodes[c].step(row), nodes[d].step(row)
			moved = (a^i)|(b^j)|(c^k)|(d^l) != 0
			a, b, c, d = i, j, k, l
		}
		sum = sum + float64(values[a]) + float64(values[b]) + float64(values[c]) + float64(values[d])
	}
	for _, at := range roots {
		for next := nodes[at].step(row); next != at; next = nodes[at].step(row) {
			at = next
		}
		sum += float64(values[at])
	}
	return sum
}

// step goes one level down, or stays at a leaf. The compiler makes no branch of the
// comparison, which would be mispredicted every other time.
func (n *node) step(row []float64) uint32 {
	var above uint32
	if row[n.feature] > n.threshold {
		above = 1
	}
	return n.left + above
}

// Trees are written root first, left before right, so that the place of a child needs no bytes
// and cannot be wrong. A leaf begins with the byte 0, a split with its feature's number plus one.
const leafTag = 0

// deepest bounds the splits above a leaf: more than any tree that was grown, few enough for the stack.
const deepest = 1 << 16

// Append appends the form that [ReadRegression] reads.
func (f *trees) Append(b []byte) []byte {
	b = artifact.Append(append(b, uint8(f.columns)), uint32(len(f.roots))) //nolint:gosec // at most 255; hundreds of trees
	for _, root := range f.roots {
		b = f.appendNode(b, root)
	}
	return b
}

func (f *trees) appendNode(b []byte, at uint32) []byte {
	n := f.nodes[at]
	if n.left == at {
		return artifact.Append(append(b, leafTag), f.values[at])
	}
	b = artifact.Append(append(b, uint8(n.feature+1)), n.threshold) //nolint:gosec // at most 255
	return f.appendNode(f.appendNode(b, n.left), n.left+1)
}

// readTrees reads what Append wrote. Whatever the bytes are, the trees are safe to walk by rows of so
// many columns unless the reader has failed. No value is below least.
func readTrees(r *artifact.Reader, columns int, least float32) trees {
	f := trees{columns: columns}
	its, count := artifact.Read[uint8](r), artifact.Read[uint32](r)
	if int(its) != columns || count < 1 {
		r.Fail("%d trees of %d columns, not %d", count, its, columns)
	}
	for ; count > 0 && r.Err() == nil; count-- {
		f.readNode(r, f.root(), 0, least)
	}
	return f
}

func (f *trees) readNode(r *artifact.Reader, at, level int, least float32) {
	tag := int(artifact.Read[uint8](r))
	if tag == leafTag {
		value := artifact.Read[float32](r)
		if !(value >= least && value <= math.MaxFloat32) {
			r.Fail("a leaf of %g", value)
		}
		f.leaf(at, value)
		return
	}
	threshold := artifact.Read[float64](r)
	if tag > f.columns || level >= deepest || math.IsNaN(threshold) || math.IsInf(threshold, 0) {
		r.Fail("a split of feature %d at %g on level %d", tag-1, threshold, level)
	}
	if r.Err() != nil {
		return
	}
	left := f.split(at, tag-1, threshold)
	f.readNode(r, left, level+1, least)
	f.readNode(r, left+1, level+1, least)
}
