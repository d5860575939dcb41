package forest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"coldaisle.dev/shared/artifact"
)

// RegressionOptions say how a random forest regressor is grown.
type RegressionOptions struct {
	Trees  int
	Leaf   int  // least distinct rows in a leaf
	Median bool // leaves hold the median of their rows, for the least absolute error, instead of the mean
	Seed   uint64
}

// Regression is a random forest regressor. Its methods may be called from many
// goroutines.
//
// It differs from Breiman in its splits, which lie between at most 256 bins of a feature's
// numbers, and optionally in its leaves, which then hold medians.
type Regression struct{ trees }

// GrowRegression grows a forest that predicts targets from rows; all numbers are finite.
func GrowRegression(rows Matrix, targets []float64, o RegressionOptions) (*Regression, error) {
	if err := rows.validate(); err != nil {
		return nil, err
	}
	if err := (Matrix{Data: targets, Columns: 1}).validate(); err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	if len(targets) != rows.Rows() || o.Trees < 1 || o.Leaf < 1 {
		return nil, fmt.Errorf("%w: %d targets for %d rows, options %+v", ErrTraining, len(targets), rows.Rows(), o)
	}
	b := newBins(rows)
	return &Regression{grow(rows.Columns, o.Trees, o.Seed, func(random *rand.Rand) trees { return growTree(random, b, targets, o) })}, nil
}

// Predict returns the mean of the trees' values for a row. It allocates nothing.
func (f *Regression) Predict(row []float64) float64 {
	return f.sum(row) / float64(len(f.roots))
}

// Append appends the form that [ReadRegression] reads.
func (f *Regression) Append(b []byte) []byte { return f.append(b) }

// ReadRegression reads what [Regression.Append] wrote.
func ReadRegression(r *artifact.Reader) *Regression {
	return &Regression{readTrees(r, -math.MaxFloat32)}
}
