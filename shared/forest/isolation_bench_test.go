package forest_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"coldaisle.dev/shared/forest"
)

// strange is rows of 15 numbers, one in fifty of them far out.
func strange(rows int, seed uint64) (m forest.Matrix, label []bool) {
	random := rand.New(rand.NewPCG(seed, 7))
	m.Columns = 15
	for range rows {
		odd := random.IntN(50) == 0
		label = append(label, odd)
		for c := range m.Columns {
			v := random.NormFloat64() * float64(c+1)
			if odd && c%3 == 0 {
				v *= 4
			}
			m.Data = append(m.Data, v)
		}
	}
	return m, label
}

func BenchmarkIsolationFitAndThreshold(b *testing.B) {
	rows, _ := strange(5000, 1)
	for b.Loop() {
		f, err := forest.GrowIsolation(rows, forest.IsolationOptions{Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		scores := f.ScoreAll(rows, 0)
		slices.Sort(scores)
		_ = scores[len(scores)*95/100]
	}
}

func BenchmarkIsolationScore500k(b *testing.B) {
	rows, _ := strange(500_000, 1)
	f, err := forest.GrowIsolation(rows, forest.IsolationOptions{Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f.ScoreAll(rows, 0)
	}
}

func BenchmarkIsolationScoreOneRow(b *testing.B) {
	rows, _ := strange(5000, 1)
	for _, c := range []struct {
		name          string
		trees, sample int
	}{{"100x256", 100, 256}, {"200x1024", 200, 1024}} {
		b.Run(c.name, func(b *testing.B) {
			f, err := forest.GrowIsolation(rows, forest.IsolationOptions{Trees: c.trees, Sample: c.sample, Seed: 1})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				f.Score(rows.Row(17))
			}
		})
	}
}
