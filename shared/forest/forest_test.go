package forest_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/forest"
	"coldaisle.dev/shared/must"
)

// auc is the area under the ROC curve: how likely an odd row scores above an
// ordinary one (Mann and Whitney's statistic).
func auc(scores []float64, odd []bool) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if scores[a] < scores[b] {
			return -1
		}
		return 1
	})
	ranks, positives := 0.0, 0.0
	for rank, i := range order {
		if odd[i] {
			ranks += float64(rank + 1)
			positives++
		}
	}
	return (ranks - positives*(positives+1)/2) / (positives * (float64(len(scores)) - positives))
}

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

// isolation grows the paper's forest.
func isolation(rows [][]float64, seed uint64) *forest.Isolation {
	return forest.GrowIsolation(rows, 100, 256, seed)
}

func regression(rows [][]float64, targets []float64, o forest.RegressionOptions) *forest.Regression {
	o.Trees, o.Leaf = cmp.Or(o.Trees, 100), cmp.Or(o.Leaf, 20)
	return forest.GrowRegression(rows, targets, o)
}

func TestStrangeRowsScoreHigh(t *testing.T) {
	t.Parallel()
	rows, odd := strange(5000, 1)
	unseen, unseenOdd := strange(5000, 2)
	f := isolation(rows, 1)
	for name, got := range map[string]float64{"seen": auc(f.ScoreAll(rows), odd), "unseen": auc(f.ScoreAll(unseen), unseenOdd)} {
		must.Hold(t, got >= 0.95, "ROC AUC of %s rows %.3f, want 0.95 or more", name, got)
	}
	// Liu et al.: an ordinary row scores about a half, one that stands alone near one.
	far := f.Score(slices.Repeat([]float64{1e6}, 15))
	must.Hold(t, far >= 0.7, "a row far out scores %.3f", far)
	// Rows that are all alike cannot be told apart, and that is no fault.
	alike := isolation(slices.Repeat([][]float64{{0, 0}}, 100), 1).Score([]float64{0, 0})
	must.Hold(t, alike > 0 && alike <= 1, "a row among its likes scores %v", alike)
}

func TestRegressionPredicts(t *testing.T) {
	t.Parallel()
	rows, targets := smooth(8000, 1)
	unseen, want := smooth(2000, 2)
	mean := regression(rows, targets, forest.RegressionOptions{Trees: 30, Seed: 1})
	squares, variance := 0.0, 0.0
	for i := range want {
		predicted := mean.Predict(unseen[i])
		squares += (predicted - want[i]) * (predicted - want[i])
		variance += want[i] * want[i]
	}
	// A quarter of the variance is noise: the best is 1-0.25/2.75.
	explained := 1 - squares/variance
	must.Hold(t, explained >= 0.55, "explains %.2f of the variance of unseen rows, want 0.55", explained)
	// Medians lose less where the noise has a heavy side.
	random := rand.New(rand.NewPCG(1, 1))
	skewed := slices.Clone(targets)
	for i := range skewed {
		if random.IntN(4) == 0 {
			skewed[i] += 20
		}
	}
	absolute := func(o forest.RegressionOptions) float64 {
		sum, f := 0.0, regression(rows, skewed, o)
		for i := range want {
			sum += math.Abs(f.Predict(unseen[i]) - want[i])
		}
		return sum / float64(len(want))
	}
	if m, a := absolute(forest.RegressionOptions{Trees: 30, Seed: 1, Median: true}), absolute(forest.RegressionOptions{Trees: 30, Seed: 1}); m > 0.8*a {
		t.Errorf("mean absolute error %.2f with medians, %.2f with means", m, a)
	}
}

// TestOrderOfRowsIsOnlyAnotherDraw permutes the rows: the forest differs as by another seed, and not in what it finds.
func TestOrderOfRowsIsOnlyAnotherDraw(t *testing.T) {
	t.Parallel()
	rows, odd := strange(5000, 1)
	var shuffled [][]float64
	for _, i := range rand.New(rand.NewPCG(9, 9)).Perm(len(rows)) {
		shuffled = append(shuffled, rows[i])
	}
	a := auc(isolation(rows, 1).ScoreAll(rows), odd)
	b := auc(isolation(shuffled, 1).ScoreAll(rows), odd)
	c := auc(isolation(rows, 2).ScoreAll(rows), odd)
	must.Hold(t, math.Abs(a-b) <= 0.03 && math.Abs(a-c) <= 0.03,
		"ROC AUC %.4f, with rows in another order %.4f, with another seed %.4f", a, b, c)
}

func TestCodec(t *testing.T) {
	t.Parallel()
	rows, _ := strange(500, 1)
	inputs, targets := smooth(500, 1)
	f, g := forest.GrowIsolation(rows, 7, 256, 1), regression(inputs, targets, forest.RegressionOptions{Trees: 7, Seed: 1})
	r := artifact.NewReader(append(f.Append(nil), g.Append(nil)...))
	f2, g2 := forest.ReadIsolation(r, 15), forest.ReadRegression(r, 22)
	if err := r.End(); err != nil || !bytes.Equal(f2.Append(nil), f.Append(nil)) || !bytes.Equal(g2.Append(nil), g.Append(nil)) {
		t.Errorf("read back: %v", err)
	}
	for i := range rows {
		if f.Score(rows[i]) != f2.Score(rows[i]) || g.Predict(inputs[i]) != g2.Predict(inputs[i]) {
			t.Fatalf("row %d differs after reading back", i)
		}
	}
	for n := range f.Append(nil) {
		r := artifact.NewReader(f.Append(nil)[:n])
		forest.ReadIsolation(r, 15)
		must.Fail(t, fmt.Sprintf("isolation forest of %d bytes", n), r.Err(), artifact.ErrUnusable)
	}
	r = artifact.NewReader(append(f.Append(nil)[:10], artifact.Append(nil, math.Inf(1))...)) // for the first threshold
	forest.ReadIsolation(r, 15)
	must.Contain(t, "an infinite threshold", fmt.Sprint(r.Err()), "+Inf")
	r = artifact.NewReader(f.Append(nil))
	forest.ReadIsolation(r, 16)
	must.Fail(t, "of another number of columns", r.Err(), artifact.ErrUnusable)
}

// FuzzDecode holds that whatever is read without an error can be used.
func FuzzDecode(f *testing.F) {
	rows, _ := strange(100, 1)
	inputs, targets := smooth(100, 1)
	f.Add(forest.GrowIsolation(rows, 2, 256, 1).Append(nil))
	f.Add(regression(inputs, targets, forest.RegressionOptions{Trees: 2, Seed: 1}).Append(nil))
	row := make([]float64, 22)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := artifact.NewReader(b)
		if decoded := forest.ReadIsolation(r, 15); r.Err() == nil {
			s := decoded.Score(row)
			must.Hold(t, s >= 0 && s <= 1, "scores %v", s)
		}
		r = artifact.NewReader(b)
		if decoded := forest.ReadRegression(r, 22); r.Err() == nil {
			p := decoded.Predict(row)
			must.Hold(t, !math.IsNaN(p) && !math.IsInf(p, 0), "predicts %v", p)
		}
	})
}

// BenchmarkIsolationScoreOneRow scores by the detector's own forest.
func BenchmarkIsolationScoreOneRow(b *testing.B) {
	rows, _ := strange(5000, 1)
	f := forest.GrowIsolation(rows, 200, 1024, 1)
	b.ReportAllocs()
	for b.Loop() {
		f.Score(rows[17])
	}
}
