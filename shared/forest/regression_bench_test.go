package forest_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"coldaisle.dev/shared/forest"
)

// smooth is rows of 22 numbers and a target that depends on some of them.
func smooth(rows int, seed uint64) (m forest.Matrix, targets []float64) {
	random := rand.New(rand.NewPCG(seed, 3))
	m.Columns = 22
	for range rows {
		first := len(m.Data)
		for range m.Columns {
			m.Data = append(m.Data, random.NormFloat64())
		}
		x := m.Data[first:]
		targets = append(targets, x[0]+math.Sin(2*x[1])+x[2]*x[3]+0.5*random.NormFloat64())
	}
	return m, targets
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
		f.Predict(rows.Row(i * 7919 % rows.Rows()))
	}
}
