package nodesim_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/nodesim"
)

// recording makes a series of so many nodes and rows for each, five seconds
// apart, the nodes taking turns.
func recording(nodes, rows int) string {
	var b strings.Builder
	b.WriteString("node_id,timestamp,temperature,humidity,label\n")
	start := time.Date(2024, 5, 9, 9, 0, 0, 0, time.UTC)
	for i := range rows {
		for n := range nodes {
			fmt.Fprintf(&b, "mote-%d,%s,%.2f,%.2f,%d\n", n, start.Add(time.Duration(i)*5*time.Second).Format(time.RFC3339Nano),
				20+float64(n)+float64(i)/100, 40+float64(i%10), i%2)
		}
	}
	return b.String()
}

func TestReplay(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	var ledger []nodesim.RowResult
	result, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
		Gateway:  g.listen(t),
		File:     strings.NewReader(recording(5, 200)),
		Clock:    time.Now,
		OnResult: func(e nodesim.RowResult) { ledger = append(ledger, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.Rows != 1000 || result.Sent != 1000 || result.Accepted != 1000 || result.Nodes != 5 ||
		result.Retries != 0 || result.Rejected != 0 || result.Failed != 0 || result.PerSecond() <= 0 {
		t.Errorf("result does not tell what happened:\n%s", result)
	}
	if got := len(g.calls("register")); got != 5 {
		t.Errorf("%d registrations of 5 nodes", got)
	}
	heard := g.calls("message")
	if len(heard) != 1000 || len(ledger) != 1000 {
		t.Fatalf("%d heard, %d in the ledger, want 1000", len(heard), len(ledger))
	}
	byID, next := map[string]call{}, map[string]float64{}
	for _, c := range heard {
		if *c.Temperature < next[c.NodeID] {
			t.Fatalf("%s sent %g after %g: out of order", c.NodeID, *c.Temperature, next[c.NodeID])
		}
		next[c.NodeID] = *c.Temperature
		byID[c.ID] = c
	}
	if len(byID) != 1000 {
		t.Errorf("%d ids for 1000 rows", len(byID))
	}
	for _, e := range ledger {
		c, ok := byID[e.MessageID]
		if !ok || c.NodeID != e.NodeID || *c.Temperature != e.Temperature || *c.Humidity != e.Humidity ||
			!e.Accepted || e.Status != 200 || e.Attempts != 1 || e.Label == "" {
			t.Fatalf("the ledger says %+v, the gateway heard %+v", e, c)
		}
	}
}

// Whatever the gateway says on the way, each row ends accepted once, under one
// id, before the node's next.
func TestReplayRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusals := []int{500, 503, 429}
		tried := map[string]int{}
		g := &gateway{answer: func(_ int, c call) int {
			if tried[c.ID]++; c.Path == "/api/v1/message" && tried[c.ID] <= len(refusals) && strings.HasSuffix(c.ID, "0") {
				return refusals[tried[c.ID]-1]
			}
			return http.StatusOK
		}}
		result, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
			Gateway: "http://gateway", Transport: g, Clock: time.Now, Run: "trial",
			File: strings.NewReader(recording(3, 100)),
		})
		if err != nil {
			t.Fatal(err)
		}
		// Lines 2 to 301 hold 30 that end in 0.
		if result.Accepted != 300 || result.Retries != 90 || result.Failed != 0 {
			t.Errorf("result does not tell what happened:\n%s", result)
		}
		last, accepted := map[string]string{}, map[string]bool{}
		for _, c := range g.calls("message") {
			if previous := last[c.NodeID]; previous != "" && previous != c.ID && !accepted[previous] {
				t.Fatalf("%s went on to %s before %s was accepted", c.NodeID, c.ID, previous)
			}
			if accepted[c.ID] {
				t.Fatalf("%s was sent again after it was accepted", c.ID)
			}
			last[c.NodeID], accepted[c.ID] = c.ID, c.Status == http.StatusOK
		}
		if !accepted["trial-2"] || !accepted["trial-301"] {
			t.Error("ids are not of run and line")
		}
	})
}

func TestReplayGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{answer: func(_ int, c call) int {
			if strings.HasSuffix(c.ID, "-50") {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}}
		start := time.Now()
		result, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
			Gateway: "http://gateway", Transport: g, Clock: time.Now, RetryTimeout: 10 * time.Second,
			File: strings.NewReader(recording(1, 100)),
		})
		if err == nil || !strings.Contains(err.Error(), "line 50 of mote-0") || !strings.Contains(err.Error(), "status 500") {
			t.Errorf("the error does not name what failed: %v", err)
		}
		if result.Accepted != 48 || result.Failed != 1 || result.Sent != 49 || time.Since(start) > 10*time.Second {
			t.Errorf("after %s:\n%s", time.Since(start), result)
		}
	})
}

func TestReplayCounts(t *testing.T) {
	t.Parallel()
	file := "\xef\xbb\xbftimestamp,humidity,node_id,temperature,extra\n" +
		"2024-01-01T00:00:10Z,40,a,21.5,x\n" +
		"2024-01-01 00:00:00,,a,20.5,x\n" +
		"2024-01-01T00:00:00+01:00,NaN,b,20,x\n" +
		"2024-01-01T00:00:05Z,41,b,,x\n" +
		"2024-01-01T00:00:06Z,41,b,130,x\n"
	half := 50.0
	cases := map[string]struct {
		humidity *float64
		want     nodesim.Result
		order    []float64 // of a's temperatures
	}{
		"rows without humidity left out": {nil, nodesim.Result{Rows: 5, SkippedHumidity: 2, SkippedTemperature: 1, Nodes: 2, Sent: 2, Accepted: 1, Rejected: 1}, []float64{21.5}},
		"humidity given":                 {&half, nodesim.Result{Rows: 5, SkippedTemperature: 1, Nodes: 2, Sent: 4, Accepted: 3, Rejected: 1}, []float64{20.5, 21.5}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{answer: func(_ int, c call) int {
				if c.Temperature != nil && *c.Temperature > 125 {
					return http.StatusBadRequest
				}
				return http.StatusOK
			}}
			got, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
				Gateway: g.listen(t), File: strings.NewReader(file), Humidity: c.humidity, StableIDs: true, Clock: time.Now,
			})
			if err != nil {
				t.Fatal(err)
			}
			got.Elapsed = 0
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			var order []float64
			for _, heard := range g.calls("message") {
				if heard.NodeID == "a" {
					order = append(order, *heard.Temperature)
				}
				if !strings.HasPrefix(heard.ID, "row-") {
					t.Errorf("stable id %q", heard.ID)
				}
			}
			if diff := cmp.Diff(c.order, order); diff != "" {
				t.Errorf("order of a (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplayKeepsThePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		start := time.Now()
		if _, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
			Gateway: "http://gateway", Transport: g, Clock: time.Now, Speed: 10, Concurrency: 1,
			File: strings.NewReader(recording(4, 21)),
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 10*time.Second { // 20 gaps of 5 s, ten times as fast
			t.Errorf("took %s, want 10s", took)
		}
	})
}

func TestReplayRunsAreToldApart(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	address := g.listen(t)
	for range 2 {
		if _, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
			Gateway: address, Clock: time.Now, File: strings.NewReader(recording(2, 10)),
		}); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]bool{}
	for _, c := range g.calls("message") {
		ids[c.ID] = true
	}
	if len(ids) != 40 {
		t.Errorf("%d ids in two runs of 20 rows, want 40", len(ids))
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	const header = "node_id,timestamp,temperature,humidity\n"
	cases := map[string]struct{ file, want string }{
		"empty file":        {"", "header"},
		"no such column":    {"node_id,time,temperature\n", "timestamp"},
		"time":              {header + "a,yesterday,20,40\n", "line 2"},
		"temperature":       {header + "a,2024-01-01T00:00:00Z,20,40\na,2024-01-01T00:00:00Z,warm,40\n", "line 3"},
		"infinite humidity": {header + "a,2024-01-01T00:00:00Z,20,+Inf\n", "line 2"},
		"node id":           {header + "rack 7,2024-01-01T00:00:00Z,20,40\n", "line 2"},
		"missing field":     {header + "a,2024-01-01T00:00:00Z,20\n", "line 2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			_, err := nodesim.Replay(t.Context(), nodesim.ReplayOptions{
				Gateway: "http://gateway", Transport: g, Clock: time.Now, File: strings.NewReader(c.file),
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if len(g.heard) > 0 {
				t.Errorf("%d requests were sent of a malformed file", len(g.heard))
			}
		})
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g := &gateway{answer: func(seen int, _ call) int {
		if seen == 20 {
			cancel()
		}
		return http.StatusOK
	}}
	result, err := nodesim.Replay(ctx, nodesim.ReplayOptions{
		Gateway: g.listen(t), Clock: time.Now, File: strings.NewReader(recording(4, 5000)),
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if result.Rows != 20000 || result.Accepted > 1000 {
		t.Errorf("went on after the end:\n%s", result)
	}
}

// BenchmarkReplay is the whole way over HTTP to a gateway that only decodes:
// what the replay itself can send.
func BenchmarkReplay(b *testing.B) {
	for _, nodes := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			server := newBare(b)
			file := recording(nodes, b.N/nodes+1)
			b.ResetTimer()
			result, err := nodesim.Replay(b.Context(), nodesim.ReplayOptions{Gateway: server, Clock: time.Now, File: strings.NewReader(file)})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(result.PerSecond(), "readings/s")
		})
	}
}
