package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	file, report := filepath.Join(folder, "site.csv"), filepath.Join(folder, "report.html")
	if err := os.WriteFile(file, []byte(said(t, "simulate", "-nodes", "3", "-readings", "1000")), 0o600); err != nil {
		t.Fatal(err)
	}
	trained := said(t, "train", "-verdicts", "-out", folder, file)
	if !strings.Contains(trained, `"f1_score": 0.`) || !strings.Contains(trained, "3000 readings of 3 nodes") {
		t.Errorf("train said\n%s", trained)
	}
	model := filepath.Join(folder, "anomaly_v20260303T120000Z.bin")
	lines := strings.Split(strings.TrimSpace(said(t, "score", "-model", model, file)), "\n")
	if len(lines) != 3001 || !strings.Contains(strings.Join(lines, "\n"), ",true,score") {
		t.Errorf("%d lines, the last %s", len(lines), lines[len(lines)-1])
	}
	if err := run(t.Context(), []string{"score", "-model", filepath.Join(folder, "forecasting_v20260303T120000Z.bin"), file}, &bytes.Buffer{}, noon); err == nil {
		t.Error("scored with a forecaster")
	}
	evaluated := said(t, "evaluate", "-report", report, file)
	if strings.Contains(evaluated, "F1, score and rules     not measured") || !strings.Contains(evaluated, "report in") {
		t.Errorf("evaluate said\n%s", evaluated)
	}
	page, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "<svg"); n != 3 || strings.Contains(string(page), "<?xml") {
		t.Errorf("%d plots in the report", n)
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
	if err := run(t.Context(), []string{"evaluate"}, &bytes.Buffer{}, noon); err == nil {
		t.Error("evaluated nothing")
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
	if err := run(t.Context(), []string{"evaluate", "-nab", t.TempDir()}, &bytes.Buffer{}, noon); err == nil {
		t.Error("scored a folder without the benchmark")
	}
	if err := run(t.Context(), []string{"evaluate", "-fleet", "nonsense"}, &bytes.Buffer{}, noon); err == nil {
		t.Error("measured nonsense")
	}
}

// What simulate says of a site's faults, evaluate finds again.
func TestTruth(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	truth, series := filepath.Join(folder, "truth.csv"), filepath.Join(folder, "site.csv")
	if err := os.WriteFile(series, []byte(said(t, "simulate", "-nodes", "6", "-readings", "11520", "-truth", truth)), 0o600); err != nil {
		t.Fatal(err)
	}
	got := said(t, "evaluate", "-truth", truth, series)
	for _, want := range []string{"statistics and neighbours", "healthy hours", "intervals of 90 %: "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "0 of 0 ") {
		t.Errorf("no events:\n%s", got)
	}
	// The same faults at the same site are the same readings.
	before, err := os.ReadFile(series)
	if err != nil {
		t.Fatal(err)
	}
	if again := said(t, "simulate", "-nodes", "6", "-readings", "11520", "-with", truth); again != string(before) {
		t.Error("the faults of a file give other readings than those that were sown")
	}
	if err := run(t.Context(), []string{"evaluate", "-truth", series, series}, &bytes.Buffer{}, noon); err == nil {
		t.Error("took readings for the truth")
	}
}
