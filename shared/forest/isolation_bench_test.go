package forest_test

import (
	"math/rand/v2"
	"testing"

	"coldaisle.dev/shared/forest"
)

// strange is rows of 15 numbers, one in fifty of them far out.
func strange(rows int, seed uint64) (all [][]float64, label []bool) {
	random := rand.New(rand.NewPCG(seed, 7))
	for range rows {
		odd := random.IntN(50) == 0
		label = append(label, odd)
		var row []float64
		for c := range 15 {
			v := random.NormFloat64() * float64(c+1)
			if odd && c%3 == 0 {
				v *= 4
			}
			row = append(row, v)
		}
		all = append(all, row)
	}
	return all, label
}

// The detector's own forest.
func detector() (*forest.Isolation, [][]float64) {
	rows, _ := strange(5000, 1)
	return forest.GrowIsolation(rows, 200, 1024, 1), rows
}

func BenchmarkIsolationFitAndThreshold(b *testing.B) {
	for b.Loop() {
		f, rows := detector()
		f.ScoreAll(rows)
	}
}

func BenchmarkIsolationScoreOneRow(b *testing.B) {
	f, rows := detector()
	b.ReportAllocs()
	for b.Loop() {
		f.Score(rows[17])
	}
}
