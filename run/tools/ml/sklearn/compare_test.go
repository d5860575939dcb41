package sklearn

import (
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// BenchmarkScikitLearn is the table of `coldaisle-ml bench` as benchmarks: ours,
// scikit-learn's on the same arrays in the same run where it is installed, and
// how many times as long it takes.
func BenchmarkScikitLearn(b *testing.B) {
	lines, about, err := Run(b.Context(), false, time.Now)
	if err != nil {
		b.Fatal(err)
	}
	b.Log(about)
	b.Log("\n" + WriteTable(lines))
	for _, l := range lines {
		b.Run(strings.NewReplacer(" ", "_", ":", "", ",", "").Replace(l.Name), func(b *testing.B) {
			for b.Loop() { // measured above, all in one run
			}
			b.ReportMetric(0, "ns/op")
			if l.Unit == "" {
				b.ReportMetric(l.Ours, "auc")
				b.ReportMetric(l.Theirs, "scikit-learn-auc")
				return
			}
			b.ReportMetric(1000*l.Ours, "ms")
			if l.Theirs > 0 {
				b.ReportMetric(1000*l.Theirs, "scikit-learn-ms")
				b.ReportMetric(l.Ratio(), "ratio")
			}
		})
	}
}

func TestArea(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scores []float64
		odd    []bool
		want   float64
	}{
		{[]float64{1, 2, 3, 4}, []bool{false, false, true, true}, 1},
		{[]float64{1, 2, 3, 4}, []bool{true, true, false, false}, 0},
		{[]float64{5, 5, 5, 5}, []bool{true, false, true, false}, 0.5},
		{[]float64{1, 2, 3}, []bool{false, true, false}, 0.5},
	} {
		if got := area(c.scores, c.odd); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v of %v: %v, want %v", c.scores, c.odd, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	got := WriteTable([]Row{
		{Name: "fit", Target: "≤ 10 ms", Unit: "s", Ours: 0.004, Theirs: 0.2, Reached: true},
		{Name: "grow", Target: "≤ 1 s", Unit: "s", Ours: 2},
		{Name: "area", Target: "close", Ours: 0.9, Theirs: 0.91, Reached: true},
	})
	want := "| | target | ours | scikit-learn | ratio |\n|---|---|---|---|---|\n" +
		"| fit | ≤ 10 ms | 4ms | 200ms | 50 |\n| grow | ≤ 1 s | 2s (missed) |  |  |\n| area | close | 0.900 | 0.910 |  |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPythonFindsTheLibrary holds that nothing in this folder, where tests run,
// stands in for scikit-learn.
func TestPythonFindsTheLibrary(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-I", "-c", "import sklearn").Run(); err != nil {
		t.Skip("scikit-learn is not installed; it is only compared with")
	}
	if python(t.Context()) == "" {
		t.Error("scikit-learn is installed and not found")
	}
}
