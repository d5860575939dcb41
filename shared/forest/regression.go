package forest

import (
	"fmt"
	"math"
	"sync"
)

// RegressionOptions say how a random forest regressor is grown.
type RegressionOptions struct {
	Trees  int
	Leaf   int  // least distinct rows in a leaf
	Median bool // leaves hold the median of their rows, for the least absolute error, instead of the mean
	Seed   uint64
}

// regressionNode is a split or a leaf in eight bytes, one load for a step: its low half is
// the index of a split's right child, or a leaf's value as a float32; then the feature's
// number, the bin, and whether it is a split. The left child of a split follows it. A row goes
// there when its bin is at most the split's; that of a leaf is the highest.
type regressionNode uint64

const (
	featureBits = 32
	binBits     = 40
	splitBit    = 48
)

func newSplit(right uint32, feature, bin uint8) regressionNode {
	return regressionNode(right) | regressionNode(feature)<<featureBits | regressionNode(bin)<<binBits | 1<<splitBit
}

func newLeaf(value uint32) regressionNode { return regressionNode(value) | (maxBins-1)<<binBits }

func (n regressionNode) isLeaf() bool    { return n>>splitBit == 0 }
func (n regressionNode) content() uint32 { return uint32(n) }               //nolint:gosec // the low half
func (n regressionNode) feature() uint8  { return uint8(n >> featureBits) } //nolint:gosec // a byte of it
func (n regressionNode) bin() uint8      { return uint8(n >> binBits) }     //nolint:gosec // a byte of it
func (n regressionNode) value() float64  { return float64(math.Float32frombits(n.content())) }

// Regression is a random forest regressor. Its methods may be called from many
// goroutines.
//
// It differs from Breiman in its splits, which lie between at most 256 bins of
// a feature's numbers, and where asked in its leaves, which then hold medians.
type Regression struct {
	quantiser quantiser
	roots     []uint32
	nodes     []regressionNode // of all trees
}

// Columns is how many features a row has.
func (f *Regression) Columns() int { return len(f.quantiser.edges) }

// GrowRegression grows a forest that predicts targets from rows, of finite
// numbers both.
func GrowRegression(rows Matrix, targets []float64, o RegressionOptions) (*Regression, error) {
	if err := rows.validate(); err != nil {
		return nil, err
	}
	if err := (Matrix{Data: targets, Columns: 1}).validate(); err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	if len(targets) != rows.Rows() || o.Trees < 1 || o.Trees > maxTrees || o.Leaf < 1 {
		return nil, fmt.Errorf("%w: %d targets for %d rows, options %+v", ErrTraining, len(targets), rows.Rows(), o)
	}
	q := newQuantiser(rows)
	bins := q.all(rows)
	trees := make([][]regressionNode, o.Trees)
	growers := sync.Pool{New: func() any { return newRegressionGrower(bins, rows.Columns, targets, o) }}
	parallelFor(o.Trees, func(tree int) {
		g, _ := growers.Get().(*regressionGrower)
		trees[tree] = g.grow(treeRand(o.Seed, tree))
		growers.Put(g)
	})
	f := &Regression{quantiser: q}
	for _, tree := range trees {
		root := uint32(len(f.nodes)) //nolint:gosec // 2^12 trees of fewer nodes than twice the rows
		f.roots = append(f.roots, root)
		for _, n := range tree {
			if !n.isLeaf() {
				n += regressionNode(root)
			}
			f.nodes = append(f.nodes, n)
		}
	}
	return f, nil
}

// Predict returns the mean of what the trees say of a row. It allocates nothing. Like
// [Isolation.Score] it walks several trees at the same time.
func (f *Regression) Predict(row []float64) float64 {
	var bins [MaxColumns + 1]uint8
	f.quantiser.row(bins[:], row[:f.Columns()])
	nodes, sum := f.nodes, 0.0
	trees := f.roots
	for ; len(trees) >= interleave; trees = trees[interleave:] {
		a, b, c, d := trees[0], trees[1], trees[2], trees[3]
		for moved := true; moved; {
			i, j, k, l := step(nodes, a, &bins), step(nodes, b, &bins), step(nodes, c, &bins), step(nodes, d, &bins)
			moved = (a^i)|(b^j)|(c^k)|(d^l) != 0
			a, b, c, d = i, j, k, l
		}
		sum = sum + nodes[a].value() + nodes[b].value() + nodes[c].value() + nodes[d].value()
	}
	for _, at := range trees {
		for !nodes[at].isLeaf() {
			at = step(nodes, at, &bins)
		}
		sum += nodes[at].value()
	}
	return sum / float64(len(f.roots))
}

// step goes one level down, or stays where it is at a leaf. There is no branch, which would
// be guessed wrong every other time.
func step(nodes []regressionNode, at uint32, bins *[MaxColumns + 1]uint8) uint32 {
	n := nodes[at]
	var above uint32
	if bins[n.feature()] > n.bin() {
		above = 1
	}
	next := at + uint32(n>>splitBit)
	return next + -above&(n.content()-next)
}
