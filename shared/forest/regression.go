package forest

import (
	"math"

	"coldaisle.dev/shared/artifact"
)

// RegressionOptions say how a random forest regressor is grown.
type RegressionOptions struct {
	Trees  int
	Leaf   int  // least distinct rows in a leaf, 1 or more
	Median bool // leaves hold the median of their rows, for the least absolute error, instead of the mean
	Seed   uint64
}

// Regression is a random forest regressor. Its methods may be called from many
// goroutines.
//
// It differs from Breiman in its splits, which lie between at most 256 bins of a feature's
// numbers, and optionally in its leaves, which then hold medians.
type Regression struct{ trees }

// GrowRegression grows a forest that predicts each row's target, a finite number.
func GrowRegression(rows Matrix, targets []float64, o RegressionOptions) *Regression {
	b := newBins(rows)
	return &Regression{grow(rows.Columns, o.Trees, o.Seed, func(g grower) trees { return growTree(g, b, targets, o) })}
}

// Predict returns the mean of the trees' values for a row. It allocates nothing.
func (f *Regression) Predict(row []float64) float64 {
	return f.sum(row) / float64(len(f.roots))
}

// ReadRegression reads what [Regression.Append] wrote, of so many columns.
func ReadRegression(r *artifact.Reader, columns int) *Regression {
	return &Regression{readTrees(r, columns, -math.MaxFloat32)}
}
