package forest_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
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

func isolation(tb testing.TB, rows forest.Matrix, o forest.IsolationOptions) *forest.Isolation {
	tb.Helper()
	o.Trees, o.Sample = cmp.Or(o.Trees, 100), cmp.Or(o.Sample, 256)
	return must.Get(forest.GrowIsolation(rows, o))(tb)
}

func regression(tb testing.TB, rows forest.Matrix, targets []float64, o forest.RegressionOptions) *forest.Regression {
	tb.Helper()
	o.Trees, o.Leaf = cmp.Or(o.Trees, 100), cmp.Or(o.Leaf, 20)
	return must.Get(forest.GrowRegression(rows, targets, o))(tb)
}

func TestStrangeRowsScoreHigh(t *testing.T) {
	t.Parallel()
	rows, odd := strange(5000, 1)
	unseen, unseenOdd := strange(5000, 2)
	f := isolation(t, rows, forest.IsolationOptions{Seed: 1})
	for name, got := range map[string]float64{"seen": auc(f.ScoreAll(rows), odd), "unseen": auc(f.ScoreAll(unseen), unseenOdd)} {
		if got < 0.95 {
			t.Errorf("ROC AUC of %s rows %.3f, want 0.95 or more", name, got)
		}
	}
	// Liu et al.: an ordinary row scores about a half, one that stands alone near one.
	if far := f.Score(slices.Repeat([]float64{1e6}, 15)); far < 0.7 {
		t.Errorf("a row far out scores %.3f", far)
	}
}

func TestRegressionPredicts(t *testing.T) {
	t.Parallel()
	rows, targets := smooth(8000, 1)
	unseen, want := smooth(2000, 2)
	mean := regression(t, rows, targets, forest.RegressionOptions{Trees: 30, Seed: 1})
	squares, variance := 0.0, 0.0
	for i := range want {
		predicted := mean.Predict(unseen.Row(i))
		squares += (predicted - want[i]) * (predicted - want[i])
		variance += want[i] * want[i]
	}
	// A quarter of the variance is noise: the best is 1-0.25/2.75.
	if explained := 1 - squares/variance; explained < 0.55 {
		t.Errorf("explains %.2f of the variance of unseen rows, want 0.55", explained)
	}
	// Medians lose less where the noise has a heavy side.
	random := rand.New(rand.NewPCG(1, 1))
	skewed := slices.Clone(targets)
	for i := range skewed {
		if random.IntN(4) == 0 {
			skewed[i] += 20
		}
	}
	absolute := func(o forest.RegressionOptions) float64 {
		sum, f := 0.0, regression(t, rows, skewed, o)
		for i := range want {
			sum += math.Abs(f.Predict(unseen.Row(i)) - want[i])
		}
		return sum / float64(len(want))
	}
	if m, a := absolute(forest.RegressionOptions{Trees: 30, Seed: 1, Median: true}), absolute(forest.RegressionOptions{Trees: 30, Seed: 1}); m > 0.8*a {
		t.Errorf("mean absolute error %.2f with medians, %.2f with means", m, a)
	}
}

// TestReproducible holds that neither the number of cores nor the moment changes a bit,
// and that the seed does.
func TestReproducible(t *testing.T) { //nolint:paralleltest // it changes the number of cores
	rows, _ := strange(2000, 1)
	inputs, targets := smooth(2000, 1)
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for name, grown := range map[string]func(seed uint64) []byte{
		"isolation": func(seed uint64) []byte { return isolation(t, rows, forest.IsolationOptions{Seed: seed}).Append(nil) },
		"mean": func(seed uint64) []byte {
			return regression(t, inputs, targets, forest.RegressionOptions{Trees: 20, Seed: seed}).Append(nil)
		},
		"median": func(seed uint64) []byte {
			return regression(t, inputs, targets, forest.RegressionOptions{Trees: 20, Seed: seed, Median: true}).Append(nil)
		},
	} {
		runtime.GOMAXPROCS(1)
		first := grown(1)
		if bytes.Equal(first, grown(2)) {
			t.Errorf("%s: another seed grows the same forest", name)
		}
		runtime.GOMAXPROCS(4)
		if !bytes.Equal(first, grown(1)) {
			t.Errorf("%s: four cores grow another forest than one", name)
		}
	}
}

// TestOrderOfRowsIsOnlyAnotherDraw permutes the rows: the forest differs as by
// another seed, and not in what it finds.
func TestOrderOfRowsIsOnlyAnotherDraw(t *testing.T) {
	t.Parallel()
	rows, odd := strange(5000, 1)
	shuffled := forest.Matrix{Columns: rows.Columns}
	for _, i := range rand.New(rand.NewPCG(9, 9)).Perm(rows.Rows()) {
		shuffled.Data = append(shuffled.Data, rows.Row(i)...)
	}
	a := auc(isolation(t, rows, forest.IsolationOptions{Seed: 1}).ScoreAll(rows), odd)
	b := auc(isolation(t, shuffled, forest.IsolationOptions{Seed: 1}).ScoreAll(rows), odd)
	c := auc(isolation(t, rows, forest.IsolationOptions{Seed: 2}).ScoreAll(rows), odd)
	if math.Abs(a-b) > 0.03 || math.Abs(a-c) > 0.03 {
		t.Errorf("ROC AUC %.4f, with rows in another order %.4f, with another seed %.4f", a, b, c)
	}
}

func TestNoAllocation(t *testing.T) { //nolint:paralleltest // counts allocations of the process
	rows, _ := strange(1000, 1)
	inputs, targets := smooth(1000, 1)
	f, g := isolation(t, rows, forest.IsolationOptions{Seed: 1}), regression(t, inputs, targets, forest.RegressionOptions{Trees: 10, Seed: 1})
	if n := testing.AllocsPerRun(100, func() { f.Score(rows.Row(3)); g.Predict(inputs.Row(3)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRefusesWhatNoForestGrowsFrom(t *testing.T) {
	t.Parallel()
	good, targets := smooth(100, 1)
	for name, err := range map[string]error{
		"no rows":       growth(forest.Matrix{Columns: 3}, 9),
		"ragged":        growth(forest.Matrix{Columns: 3, Data: make([]float64, 7)}, 9),
		"not a number":  growth(forest.Matrix{Columns: 1, Data: []float64{1, math.NaN()}}, 9),
		"infinite":      growth(forest.Matrix{Columns: 1, Data: []float64{1, math.Inf(1)}}, 9),
		"no tree":       growth(good, 0),
		"other targets": second(forest.GrowRegression(good, targets[1:], forest.RegressionOptions{Trees: 9, Leaf: 20})),
		"no leaf":       second(forest.GrowRegression(good, targets, forest.RegressionOptions{Trees: 9})),
	} {
		if !errors.Is(err, forest.ErrTraining) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Rows that are all alike cannot be told apart, and that is no fault.
	flat := isolation(t, forest.Matrix{Columns: 2, Data: make([]float64, 200)}, forest.IsolationOptions{})
	if s := flat.Score([]float64{0, 0}); s <= 0 || s > 1 {
		t.Errorf("a row among its likes scores %v", s)
	}
}

func growth(rows forest.Matrix, trees int) error {
	_, err := forest.GrowIsolation(rows, forest.IsolationOptions{Trees: trees, Sample: 256})
	return err
}

func second(_ *forest.Regression, err error) error { return err }

func TestCodec(t *testing.T) {
	t.Parallel()
	rows, _ := strange(500, 1)
	inputs, targets := smooth(500, 1)
	f, g := isolation(t, rows, forest.IsolationOptions{Trees: 7, Seed: 1}), regression(t, inputs, targets, forest.RegressionOptions{Trees: 7, Seed: 1})
	r := artifact.NewReader(append(f.Append(nil), g.Append(nil)...))
	f2, g2 := forest.ReadIsolation(r), forest.ReadRegression(r)
	if err := r.End(); err != nil || !bytes.Equal(f2.Append(nil), f.Append(nil)) || !bytes.Equal(g2.Append(nil), g.Append(nil)) {
		t.Errorf("read back: %v", err)
	}
	for i := range rows.Rows() {
		if f.Score(rows.Row(i)) != f2.Score(rows.Row(i)) || g.Predict(inputs.Row(i)) != g2.Predict(inputs.Row(i)) {
			t.Fatalf("row %d differs after reading back", i)
		}
	}
	for n := range f.Append(nil) {
		r := artifact.NewReader(f.Append(nil)[:n])
		if forest.ReadIsolation(r); !errors.Is(r.Err(), artifact.ErrUnusable) {
			t.Fatalf("isolation forest of %d bytes: %v", n, r.Err())
		}
	}
	r = artifact.NewReader(append(f.Append(nil)[:10], artifact.Append(nil, math.Inf(1))...)) // for the first threshold
	if forest.ReadIsolation(r); r.Err() == nil || !strings.Contains(r.Err().Error(), "+Inf") {
		t.Errorf("an infinite threshold: %v", r.Err())
	}
}

// FuzzDecode holds that whatever is read without an error can be used.
func FuzzDecode(f *testing.F) {
	rows, _ := strange(100, 1)
	inputs, targets := smooth(100, 1)
	f.Add(isolation(f, rows, forest.IsolationOptions{Trees: 2, Seed: 1}).Append(nil))
	f.Add(regression(f, inputs, targets, forest.RegressionOptions{Trees: 2, Seed: 1}).Append(nil))
	row := make([]float64, forest.MaxColumns)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := artifact.NewReader(b)
		if decoded := forest.ReadIsolation(r); r.Err() == nil {
			if s := decoded.Score(row); !(s >= 0 && s <= 1) {
				t.Errorf("scores %v", s)
			}
		}
		r = artifact.NewReader(b)
		if decoded := forest.ReadRegression(r); r.Err() == nil {
			if p := decoded.Predict(row); math.IsNaN(p) || math.IsInf(p, 0) {
				t.Errorf("predicts %v", p)
			}
		}
	})
}
