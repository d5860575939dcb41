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

// regressionNode is a split or a leaf in eight bytes: a full-depth forest of
// half a million rows has some sixty million of them. The left child of a split
// follows it. A row goes there when its bin is at most the split's.
type regressionNode struct {
	content uint32 // right child, counted from the tree's first node; of a leaf, its value as a float32
	feature uint8
	bin     uint8
	leaf    bool
}

func (n regressionNode) value() float64 { return float64(math.Float32frombits(n.content)) }

// Regression is a random forest regressor. Its methods may be called from many
// goroutines.
//
// It differs from Breiman in its splits, which lie between at most 256 bins of
// a feature's numbers, and where asked in its leaves, which then hold medians.
type Regression struct {
	quantiser quantiser
	trees     [][]regressionNode
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
	f := &Regression{quantiser: q, trees: make([][]regressionNode, o.Trees)}
	growers := sync.Pool{New: func() any { return newRegressionGrower(bins, rows.Columns, targets, o) }}
	parallelFor(o.Trees, func(tree int) {
		g, _ := growers.Get().(*regressionGrower)
		f.trees[tree] = g.grow(treeRand(o.Seed, tree))
		growers.Put(g)
	})
	return f, nil
}

// Predict returns the mean of what the trees say of a row. It allocates nothing.
func (f *Regression) Predict(row []float64) float64 {
	var bins [MaxColumns]uint8
	f.quantiser.row(bins[:], row[:f.Columns()])
	sum := 0.0
	for _, tree := range f.trees {
		sum += walk(tree, bins[:])
	}
	return sum / float64(len(f.trees))
}

func walk(tree []regressionNode, bins []uint8) float64 {
	at := uint32(0)
	for {
		n := tree[at]
		if n.leaf {
			return n.value()
		}
		next := at + 1
		if bins[n.feature] > n.bin {
			next = n.content
		}
		at = next
	}
}
