package trial_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func readTracks(t *testing.T, text string) ([]trial.Track, int) {
	t.Helper()
	nodes, skipped, err := trial.ReadTracks(strings.NewReader(text))
	must.Do(t, err)
	return nodes, skipped
}

func TestReadTracks(t *testing.T) {
	t.Parallel()
	nodes, skipped := readTracks(t, `timestamp,temperature,node_id,humidity,label
2026-03-01T12:01:00Z,21,b,,1
2026-03-01T12:00:00Z,20,b,40,0
2026-03-01T12:00:00Z,25,b,41,1
2026-03-01T12:00:30Z,,b,40,0
2026-03-01T12:00:30Z,400,b,40,0
2026-03-01 12:00:00,20,a,40,
0001-01-01T00:00:00Z,20,a,40,
1999-12-31T23:59:59Z,20,a,40,
2100-01-01T00:00:00Z,20,a,40,
9999-12-31T23:59:59Z,20,c,40,
`)
	if skipped != 7 || len(nodes) != 2 {
		t.Fatalf("%d, %+v", skipped, nodes)
	}
	b := nodes[0]
	if b.Node != "b" || len(b.Readings) != 2 || b.Readings[0].Temperature != 20 || !math.IsNaN(b.Readings[1].Humidity) || b.Labels[0] || !b.Labels[1] {
		t.Errorf("%+v", b)
	}
	if a := nodes[1]; a.Labels != nil || !a.Readings[0].Time.Equal(b.Readings[0].Time) {
		t.Errorf("a node without labels: %+v", a)
	}
	for _, bad := range []string{"", "node_id,timestamp,temperature\n", "node_id,temperature\na,1\n", "node_id,timestamp,temperature\na,noon,1\n"} {
		if _, _, err := trial.ReadTracks(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	const series = "node_id,timestamp,temperature,label\na,2026-03-01T12:00:00Z,20,0\na,2026-03-01T12:01:00Z,20,"
	for want, words := range map[bool][]string{
		true:  {"1", "1.0", " 1"},
		false: {"0", "0.0", "", " 0", " "},
	} {
		for _, word := range words {
			if nodes, _ := readTracks(t, series+word+"\n"); nodes[0].Labels[1] != want {
				t.Errorf("%q is read as %v", word, !want)
			}
		}
	}
	for _, word := range []string{"2", "-1", "NaN", "n", "ok", "score", "nonsense"} {
		_, _, err := trial.ReadTracks(strings.NewReader(series + word + "\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "line 3: label \""+word+"\"") {
			t.Errorf("%q: %v", word, err)
		}
	}
	if nodes, _ := readTracks(t, "node_id,timestamp,temperature,label\na,2026-03-01T12:00:00Z,20,\n"); nodes[0].Labels != nil {
		t.Error("a node without labels is labelled")
	}
}

func TestQuicken(t *testing.T) {
	t.Parallel()
	n := trial.Track{Readings: make([]reading.Reading, 100)}
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	every := func(interval time.Duration) {
		for i := range n.Readings {
			n.Readings[i].Time = begin.Add(time.Duration(i) * interval)
		}
	}
	every(time.Minute)
	if quick := n.Quickened(); n.Slow() || quick.Interval() != time.Minute {
		t.Errorf("a node that sends every minute was quickened to %v", quick.Interval())
	}
	every(time.Hour)
	if quick := n.Quickened(); !n.Slow() || quick.Interval() != 30*time.Second || n.Interval() != time.Hour {
		t.Errorf("quickened to %v, itself %v", quick.Interval(), n.Interval())
	}
}
