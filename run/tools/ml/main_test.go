package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/must"
)

func noon() time.Time { return time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC) }

// said is what the command prints.
func said(t *testing.T, arguments ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(arguments, &out, noon); err != nil {
		t.Fatalf("%v: %v", arguments, err)
	}
	return out.String()
}

// TestCommands evaluates a simulated site, with the faults of a file.
func TestCommands(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	faults := "kind,cause,room,node,start,end,peak,peak_humidity,constant_s\n"
	must.Do(t, os.WriteFile(in("faults.csv"), []byte(faults+"cooling,cooling fails,room1,room1-node1,2026-03-02T15:00:00Z,2026-03-02T16:00:00Z,4,0,1800\nspike,spike,room1,room1-node2,2026-03-02T16:30:00Z,2026-03-02T16:31:00Z,20,0,0\nspike,of all rooms,,,2026-03-02T05:00:00Z,2026-03-02T05:01:00Z,20,0,0\n"), 0o600))
	simulate := []string{"simulate", "-nodes", "4", "-readings", "2500", "-seed", "3"}
	sown, given := said(t, simulate...), said(t, append(simulate, "-with", in("faults.csv"))...)
	for name, text := range map[string]string{"sown": sown, "given": given} {
		rows := strings.Split(strings.TrimSpace(text), "\n")
		must.Hold(t, len(rows) == 10001 && strings.Contains(text, ",1,room"), "%s: %d rows", name, len(rows))
	}
	must.Equal(t, "the faults of a file are those that are sown", false, sown == given)
	labelled := regexp.MustCompile(`node[1-4],2026-03-02T05:00:\S*,1,room1`).FindAllString(given, -1)
	must.Equal(t, "readings of a fault of all rooms that are labelled, two of each node", 8, len(labelled))
	must.Do(t, os.WriteFile(in("site.csv"), []byte(given), 0o600))
	evaluated := said(t, "evaluate", "-report", in("report.html"), in("site.csv"))
	must.Contain(t, "the evaluation", evaluated, "10000 readings of 4 nodes", "ROC AUC of the score         0.",
		"report in", "statistics and neighbours", "intervals of 90 %: ")
	page := must.Get(os.ReadFile(in("report.html")))(t)
	if n := strings.Count(string(page), "<svg"); n != 3 || strings.Contains(string(page), "<?xml") {
		t.Errorf("%d plots in the report", n)
	}
	err := run(append(simulate, "-with", in("site.csv")), &bytes.Buffer{}, noon)
	must.Equal(t, "readings are taken for faults", false, err == nil)
}

// TestSownCommands sows faults and ramps on the readings of a calm site: nearly all are found, and of
// a ramp to a limit far enough ahead all are told, however fast.
func TestSownCommands(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "site.csv")
	columns := file + ".faults"
	must.Do(t, os.WriteFile(columns, []byte("kind,cause,room,node,start,end,peak,peak_humidity,constant_s\n"), 0o600))
	must.Do(t, os.WriteFile(file, []byte(said(t, "simulate", "-nodes", "6", "-readings", "11520", "-with", columns)), 0o600))
	sown := said(t, "evaluate", "-sow", "1", "-each", "1", file)
	if !regexp.MustCompile(`\| all \| \d+ \| (0\.[6-9]|1\.0)`).MatchString(sown) || !strings.Contains(sown, "false incidents at budget 4: ") {
		t.Error(sown)
	}
	ramps := said(t, "evaluate", "-sow", "1", "-ramps", file)
	// The readings end before one slow ramp does.
	for class, passed := range map[string]string{"0.1 to 0.3": "15", "0.3 to 0.8": "16", "0.8 to 1.5": "16", "1.5 to 3": "16"} {
		if !regexp.MustCompile("ramps of " + class + ` °C/min: (0\.9\d|1\.00) of ` + passed + " told").MatchString(ramps) {
			t.Errorf("%s: %s", class, ramps)
		}
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
	must.Do(t, os.WriteFile(file, []byte(hourly.String()), 0o600))
	must.Contain(t, "the evaluation", said(t, "evaluate", file), "the forest judges it as if it sent every 30s",
		"450 rows without a temperature, impossible, or of an instant twice",
		"ROC AUC of the score         not measured", "nobody knows what happened within 20 s")
	must.Equal(t, "nothing is evaluated", false, run([]string{"evaluate"}, &bytes.Buffer{}, noon) == nil)
}

func TestSimulateNothing(t *testing.T) {
	t.Parallel()
	for _, nothing := range [][]string{{"-nodes", "0"}, {"-nodes", "-1"}, {"-readings", "0"}, {"-readings", "-5"}} {
		err := run(append([]string{"simulate"}, nothing...), &bytes.Buffer{}, noon)
		must.Equal(t, fmt.Sprint(nothing, " is accepted"), false, err == nil)
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
			want: "no reading after it is labelled anomalous: all alarms count as false", none: "  0 of 0",
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
			must.Do(t, os.WriteFile(file, []byte(b.String()), 0o600))
			got := said(t, "evaluate", file)
			must.Hold(t, strings.Contains(got, c.want) && !strings.Contains(got, c.none),
				"%q is missing or %q is there in\n%s", c.want, c.none, got)
		})
	}
}

func TestCurves(t *testing.T) {
	t.Parallel()
	scores := []trial.Judged{{Score: 0.9, Wrong: true}, {Score: 0.8}, {Score: 0.7, Wrong: true}, {Score: 0.1}, {Score: 0.1, Wrong: true}}
	// Of the six pairs of an anomaly and another, three are in order and one ties.
	must.Equal(t, "area", 3.5/6, area(rocOf(scores, 3)), cmpopts.EquateApprox(0, 1e-12))
	// A rule finds it.
	scores[slices.Index(scores, trial.Judged{Score: 0.1, Wrong: true})].Score = math.Inf(1)
	must.Equal(t, "best F1, at 0.7", 6.0/7, bestF1(scores, 3), cmpopts.EquateApprox(0, 1e-12))
}

func TestUnknownFleet(t *testing.T) {
	t.Parallel()
	err := run([]string{"evaluate", "-fleet", "nonsense"}, &bytes.Buffer{}, noon)
	must.Contain(t, "the error", fmt.Sprint(err), "say test")
}
