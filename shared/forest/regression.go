package forest

import (
	"fmt"
	"math"
)

// RegressionOptions say how a random forest regressor is grown.
type RegressionOptions struct {
	Trees   int  // 0 means 100
	Leaf    int  // least distinct rows in a leaf; 0 means 20, 1 grows to full depth
	Tried   int  // features tried per split; 0 means a third of them
	Median  bool // leaves hold the median of their rows, for the least absolute error, instead of the mean
	Seed    uint64
	Workers int // goroutines; 0 means one per core
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

// Trees is how many trees the forest has.
func (f *Regression) Trees() int { return len(f.trees) }

// GrowRegression grows a forest that predicts targets from rows, of finite
// numbers both.
func GrowRegression(rows Matrix, targets []float64, o RegressionOptions) (*Regression, error) {
	if err := rows.validate(); err != nil {
		return nil, err
	}
	if err := (Matrix{Data: targets, Columns: 1}).validate(); err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	if o.Trees == 0 {
		o.Trees = 100
	}
	if o.Leaf == 0 {
		o.Leaf = 20
	}
	if o.Tried == 0 {
		o.Tried = max(1, rows.Columns/3)
	}
	if len(targets) != rows.Rows() || o.Trees < 1 || o.Trees > maxTrees || o.Leaf < 1 || o.Tried < 1 || o.Tried > rows.Columns {
		return nil, fmt.Errorf("%w: %d targets for %d rows, options %+v", ErrTraining, len(targets), rows.Rows(), o)
	}
	q := newQuantiser(rows, o.Workers)
	bins := q.all(rows, o.Workers)
	f := &Regression{quantiser: q, trees: make([][]regressionNode, o.Trees)}
	growers := make([]*regressionGrower, min(cores(o.Workers), o.Trees))
	parallelFor(o.Trees, o.Workers, func(worker, tree int) {
		if growers[worker] == nil {
			growers[worker] = newRegressionGrower(bins, rows.Columns, targets, o)
		}
		f.trees[tree] = growers[worker].grow(treeRand(o.Seed, tree))
	})
	return f, nil
}

// Predict returns the mean of what the trees say of a row. It allocates nothing.
func (f *Regression) Predict(row []float64) float64 {
	var bins [MaxColumns]uint8
	f.quantiser.row(bins[:], row[:f.Columns()])
	return f.predict(bins[:f.Columns()])
}

// PredictAll predicts every row, with so many goroutines, 0 for one per core.
// The result equals that of [Regression.Predict] bit for bit.
func (f *Regression) PredictAll(rows Matrix, workers int) []float64 {
	predicted := make([]float64, rows.Rows())
	blocks := (len(predicted) + blockRows - 1) / blockRows
	parallelFor(blocks, workers, func(_, block int) {
		first := block * blockRows
		last := min(first+blockRows, len(predicted))
		f.predictBlock(predicted[first:last], rows.Data[first*rows.Columns:last*rows.Columns])
	})
	return predicted
}

func (f *Regression) predictBlock(predicted, data []float64) {
	columns := f.Columns()
	bins := make([]uint8, len(data))
	for i := range predicted {
		f.quantiser.row(bins[i*columns:(i+1)*columns], data[i*columns:(i+1)*columns])
	}
	for _, tree := range f.trees {
		for i := range predicted {
			predicted[i] += walk(tree, bins[i*columns:(i+1)*columns])
		}
	}
	for i := range predicted {
		predicted[i] /= float64(len(f.trees))
	}
}

func (f *Regression) predict(bins []uint8) float64 {
	sum := 0.0
	for _, tree := range f.trees {
		sum += walk(tree, bins)
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
