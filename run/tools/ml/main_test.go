package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/tools/ml/labelled"
	"coldaisle.dev/shared/reading"
)

func noon() time.Time { return time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC) }

// said is what the command prints.
func said(t *testing.T, arguments ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), arguments, &out, noon); err != nil {
		t.Fatalf("%v: %v", arguments, err)
	}
	return out.String()
}

// TestCommands goes the way of a person: simulate, train, score, evaluate.
func TestCommands(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	write := func(name, text string) {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	simulate := []string{"simulate", "-nodes", "4", "-readings", "2500", "-seed", "3"}
	healthy := said(t, append(simulate, "-faults=false")...)
	sown := said(t, append(simulate, "-truth", in("truth.csv"))...)
	if rows := strings.Split(strings.TrimSpace(healthy), "\n"); len(rows) != 10001 || strings.Contains(healthy, ",1\n") || !strings.Contains(sown, ",1\n") {
		t.Fatalf("%d rows, labelled %v without faults", len(rows), strings.Contains(healthy, ",1\n"))
	}
	// The same faults at the same site are the same readings.
	if said(t, append(simulate, "-with", in("truth.csv"))...) != sown {
		t.Error("the faults of a file give other readings than those that were sown")
	}
	truth, err := os.ReadFile(in("truth.csv"))
	if err != nil {
		t.Fatal(err)
	}
	write("truth.csv", string(truth)+"cooling,cooling fails,room1,room1-node1,2026-03-02T15:00:00Z,2026-03-02T16:00:00Z,4,0,1800\n")
	file := in("site.csv")
	write("site.csv", said(t, append(simulate, "-with", in("truth.csv"))...))

	trained := said(t, "train", "-verdicts", "-out", folder, file)
	if !strings.Contains(trained, `"f1_score": 0.`) || !strings.Contains(trained, "10000 readings of 4 nodes") {
		t.Errorf("train said\n%s", trained)
	}
	model := in("anomaly_v20260303T120000Z.bin")
	lines := strings.Split(strings.TrimSpace(said(t, "score", "-model", model, file)), "\n")
	if len(lines) != 10001 || !strings.Contains(strings.Join(lines, "\n"), ",true,score") {
		t.Errorf("%d lines, the last %s", len(lines), lines[len(lines)-1])
	}
	if err := run(t.Context(), []string{"score", "-model", in("forecasting_v20260303T120000Z.bin"), file}, &bytes.Buffer{}, noon); err == nil {
		t.Error("scored with a forecaster")
	}

	// What simulate says of a site's faults, evaluate finds again.
	evaluated := said(t, "evaluate", "-report", in("report.html"), "-truth", in("truth.csv"), file)
	for _, want := range []string{"ROC AUC of the score         0.", " on 210 readings", " of 3 ", "report in", "statistics and neighbours", "healthy hours", "intervals of 90 %: "} {
		if !strings.Contains(evaluated, want) {
			t.Errorf("%q is missing in\n%s", want, evaluated)
		}
	}
	page, err := os.ReadFile(in("report.html"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "<svg"); n != 3 || strings.Contains(string(page), "<?xml") {
		t.Errorf("%d plots in the report", n)
	}
	if err := run(t.Context(), []string{"evaluate", "-truth", file, file}, &bytes.Buffer{}, noon); err == nil {
		t.Error("took readings for the truth")
	}
	write("truth.csv", string(truth)+"cooling,cooling fails,room1,elsewhere,2026-03-02T15:00:00Z,2026-03-02T16:00:00Z,4,0,1800\n")
	if err := run(t.Context(), []string{"evaluate", "-truth", in("truth.csv"), file}, &bytes.Buffer{}, noon); err == nil || !strings.Contains(err.Error(), `"elsewhere"`) {
		t.Errorf("a truth of another site: %v", err)
	}
}

func TestEvaluateOddSeries(t *testing.T) {
	t.Parallel()
	var hourly strings.Builder
	hourly.WriteString("node_id,timestamp,temperature\n")
	for i := range 900 {
		at := noon().Add(time.Duration(i) * time.Hour).Format(time.RFC3339)
		for range 1 + i%2 { // every other row twice
			hourly.WriteString("attic," + at + "," + decimal(20+3*math.Sin(float64(i)/4)+0.1*float64(i%7)) + "\n")
		}
	}
	file := filepath.Join(t.TempDir(), "hourly.csv")
	if err := os.WriteFile(file, []byte(hourly.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := said(t, "evaluate", file)
	for _, want := range []string{"judged as if it sent every 30s", "450 of an instant twice", "ROC AUC of the score         not measured", "nobody knows what happened within 20 s"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	// To one that learned from a place 40 °C colder, most of it is odd.
	odd := func(out string) (percent float64) {
		_, share, _ := strings.Cut(out, "judged anomalous")
		if _, err := fmt.Sscan(share, &percent); err != nil {
			t.Fatal(err)
		}
		return percent
	}
	cold := filepath.Join(t.TempDir(), "cold.csv")
	if err := os.WriteFile(cold, []byte(strings.ReplaceAll(hourly.String(), "Z,", "Z,-")), 0o600); err != nil {
		t.Fatal(err)
	}
	if own, other := odd(got), odd(said(t, "evaluate", "-train", cold, file)); own > 10 || other < 50 {
		t.Errorf("%g %% are odd, %g %% to what learned from another file", own, other)
	}
	if err := run(t.Context(), []string{"evaluate"}, &bytes.Buffer{}, noon); err == nil {
		t.Error("evaluated nothing")
	}
	for last, refused := range map[time.Time]bool{noon().AddDate(10, 0, 0): false, noon().AddDate(10, 0, 1): true, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC): true} {
		err := checkSpan([]labelled.Series{
			{Readings: []reading.Reading{{Time: noon().Add(time.Hour)}, {Time: last}}}, {Readings: []reading.Reading{{Time: noon()}}},
		})
		if refused != (err != nil) {
			t.Errorf("to %s: %v", last, err)
		}
	}
}

func TestSimulateNothing(t *testing.T) {
	t.Parallel()
	for _, nothing := range [][]string{{"-nodes", "0"}, {"-nodes", "-1"}, {"-readings", "0"}, {"-readings", "-5"}} {
		if err := run(t.Context(), append([]string{"simulate"}, nothing...), &bytes.Buffer{}, noon); err == nil {
			t.Errorf("%v is accepted", nothing)
		}
	}
}

// What is not labelled is not taken for healthy, and where nothing can be found it says so.
func TestEvaluateLabels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b       func(i int) string // labels
		want, none string
	}{
		"one node without labels": {
			a: func(i int) string { return strconv.Itoa(i / 60 % 2) }, b: func(int) string { return "" },
			want: "not measured for want of labels: b\nreadings                     600, ", none: "nothing is measured",
		},
		"nothing anomalous": {
			a: func(int) string { return "0" }, b: func(int) string { return "0" },
			want: "no reading after it is anomalous: only false alarms are measured", none: "  0 of 0",
		},
		"everything anomalous": {
			a: func(int) string { return "1" }, b: func(int) string { return "1" },
			want: "nothing is measured: all of the ", none: "1.000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "labels.csv")
			var b strings.Builder
			b.WriteString("node_id,timestamp,temperature,label\n")
			for i := range 600 {
				at := noon().Add(time.Duration(i) * time.Minute).Format(time.RFC3339)
				for node, label := range map[string]string{"a": c.a(i), "b": c.b(i)} {
					b.WriteString(node + "," + at + "," + decimal(20+3*math.Sin(float64(i)/40)+0.1*float64(i%7)) + "," + label + "\n")
				}
			}
			if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			got := said(t, "evaluate", file)
			if !strings.Contains(got, c.want) || strings.Contains(got, c.none) {
				t.Errorf("%q is missing or %q is there in\n%s", c.want, c.none, got)
			}
		})
	}
}

func TestCurves(t *testing.T) {
	t.Parallel()
	scores := []scored{{score: 0.9, truth: true}, {score: 0.8}, {score: 0.7, truth: true}, {score: 0.1}, {score: 0.1, rule: true, truth: true}}
	// Of the six pairs of an anomaly and another, three are in order and one ties.
	if got := area(rocOf(scores)); math.Abs(got-3.5/6) > 1e-12 {
		t.Errorf("area %v", got)
	}
	if best, at := bestF1(scores); math.Abs(best-6.0/7) > 1e-12 || at != 0.7 {
		t.Errorf("best F1 %v at %v", best, at)
	}
}

// The layout is that of the benchmark's repository: data/GROUP/NAME.csv and
// labels/combined_windows.json in, results/DETECTOR/GROUP/DETECTOR_NAME.csv out, with the
// columns of its other detectors that its scorer reads.
func TestNAB(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var series strings.Builder
	series.WriteString("timestamp,value\n")
	for i := range 300 {
		value := 10 + math.Sin(float64(i))
		if i == 250 {
			value = 14
		}
		series.WriteString(noon().Add(time.Duration(i)*time.Minute).Format(time.DateTime) + "," + decimal(value) + "\n")
	}
	write("data/realKnownCause/one.csv", series.String())
	write("labels/combined_windows.json", `{"realKnownCause/one.csv": [["2026-03-03 16:00:00.000000", "2026-03-03 16:20:00.000000"]]}`)
	if got := said(t, "evaluate", "-nab", folder); !strings.Contains(got, "1 files scored") {
		t.Error(got)
	}
	scored, err := os.ReadFile(filepath.Join(folder, "results/coldaisle/realKnownCause/coldaisle_one.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(scored)), "\n")
	if len(lines) != 301 || lines[0] != "timestamp,value,anomaly_score,label" || lines[1] != "2026-03-03 12:00:00,10.00,0,0" {
		t.Errorf("%d lines, beginning %q", len(lines), lines[:2])
	}
	if odd := strings.Split(lines[251], ","); odd[0] != "2026-03-03 16:10:00" || odd[2] != "1" || odd[3] != "1" {
		t.Errorf("%q", odd)
	}
	for _, c := range []struct{ file, windows, want string }{
		{"", "", "row 1"},
		{"value\n1\n", "", "row 1"},
		{"timestamp,value\n2026-03-03 12:00:00,1\n2026-03-03 12:01:00,NaN\n", "", "row 3"},
		{"timestamp,value\n2026-03-03 12:00:00,inf\n", "", "row 2"},
		{"timestamp,value\n", `["2026-03-03 12:00:00", "2026-03-03 12:01"]`, "one.csv, window 1"},
		{"timestamp,value\n", `["2026-03-03 12:00:00"]`, "one.csv, window 1"},
	} {
		write("data/realKnownCause/one.csv", c.file)
		write("labels/combined_windows.json", `{"realKnownCause/one.csv": [`+c.windows+`]}`)
		err := run(t.Context(), []string{"evaluate", "-nab", folder}, &bytes.Buffer{}, noon)
		if err == nil || !strings.Contains(err.Error(), "one.csv") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q, windows %q: %v", c.file, c.windows, err)
		}
	}
	if err := run(t.Context(), []string{"evaluate", "-nab", t.TempDir()}, &bytes.Buffer{}, noon); err == nil {
		t.Error("scored a folder without the benchmark")
	}
	if err := run(t.Context(), []string{"evaluate", "-fleet", "nonsense"}, &bytes.Buffer{}, noon); err == nil {
		t.Error("measured nonsense")
	}
}
