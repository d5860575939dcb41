package forest_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"coldaisle.dev/shared/forest"
)

// smooth is rows of 22 numbers and a target that depends on some of them.
func smooth(rows int, seed uint64) (all [][]float64, targets []float64) {
	random := rand.New(rand.NewPCG(seed, 3))
	for range rows {
		var x []float64
		for range 22 {
			x = append(x, random.NormFloat64())
		}
		all = append(all, x)
		targets = append(targets, x[0]+math.Sin(2*x[1])+x[2]*x[3]+0.5*random.NormFloat64())
	}
	return all, targets
}

func BenchmarkRegressionFit50k(b *testing.B) {
	rows, targets := smooth(50_000, 1)
	for b.Loop() {
		regression(rows, targets, forest.RegressionOptions{Seed: 1})
	}
}

func BenchmarkRegressionPredictOneRow(b *testing.B) {
	rows, targets := smooth(20_000, 1)
	f := regression(rows, targets, forest.RegressionOptions{Seed: 1})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ { // another row each time, as the processor learns the way of one
		f.Predict(rows[i*7919%len(rows)])
	}
}
