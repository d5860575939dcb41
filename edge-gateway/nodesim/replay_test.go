package nodesim_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/recording"
)

// recorded returns a recording of so many nodes and rows for each, five seconds apart, the
// nodes taking turns.
func recorded(t *testing.T, nodes, rows int) *recording.Recording {
	t.Helper()
	var b strings.Builder
	b.WriteString("node_id,timestamp,temperature,humidity\n")
	start := time.Date(2024, 5, 9, 9, 0, 0, 0, time.UTC)
	for i := range rows {
		for n := range nodes {
			fmt.Fprintf(&b, "mote-%d,%s,%.2f,%d\n", n, start.Add(time.Duration(i)*5*time.Second).Format(time.RFC3339), 20+float64(n)+float64(i)/100, 40+i%10)
		}
	}
	return must.Get(recording.Read(strings.NewReader(b.String()), nil))(t)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	address := g.listen(t)
	for range 2 { // whose ids differ
		result, err := nodesim.Replay(t.Context(), address, recorded(t, 5, 200), nil, time.Now)
		if err != nil || result.Accepted != 1000 || result.Rejected != 0 || result.PerSecond() <= 0 {
			t.Errorf("%+v, %v", result, err)
		}
	}
	must.Equal(t, "registrations of 5 nodes in two replays", 10, len(g.calls("register")))
	ids, heard := map[string]bool{}, map[string][]float64{}
	for _, c := range g.calls("message") {
		ids[c.ID] = true
		heard[c.NodeID] = append(heard[c.NodeID], *c.Temperature)
	}
	if len(ids) != 2000 || len(heard) != 5 {
		t.Errorf("%d ids of %d nodes for 2000 rows of 5", len(ids), len(heard))
	}
	for node, temperatures := range heard {
		if len(temperatures) != 400 || !slices.IsSorted(temperatures[:200]) {
			t.Errorf("%s sent %d rows, out of order", node, len(temperatures))
		}
	}
}

// Whatever the gateway says on the way, each row is accepted once, under one id, before the
// node's next.
func TestReplayRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusals := []int{500, 503, 429}
		tried := map[string]int{}
		g := &gateway{answer: func(_ int, c call) int {
			if tried[c.ID]++; c.Path == "/api/v1/message" && tried[c.ID] <= len(refusals) && strings.HasSuffix(c.ID, "0") {
				return refusals[tried[c.ID]-1]
			}
			if strings.HasSuffix(c.ID, "-33") {
				return http.StatusBadRequest
			}
			return http.StatusOK
		}}
		result, err := nodesim.Replay(t.Context(), "http://gateway", recorded(t, 3, 100), g, time.Now)
		if err != nil || result.Accepted != 299 || result.Rejected != 1 {
			t.Fatalf("%+v, %v", result, err)
		}
		last, ended := map[string]string{}, map[string]bool{}
		for _, c := range g.calls("message") {
			if previous := last[c.NodeID]; previous != "" && previous != c.ID && !ended[previous] {
				t.Fatalf("%s went on to %s before the end of %s", c.NodeID, c.ID, previous)
			}
			if ended[c.ID] {
				t.Fatalf("%s was sent again after its end", c.ID)
			}
			last[c.NodeID], ended[c.ID] = c.ID, c.Status < 429
		}
		if len(ended) != 300 || len(g.calls("message")) != 390 { // lines 2 to 301 hold 30 that end in 0
			t.Errorf("%d rows in %d requests, want 300 in 390", len(ended), len(g.calls("message")))
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
		result, err := nodesim.Replay(t.Context(), "http://gateway", recorded(t, 1, 100), g, time.Now)
		if err == nil || !strings.Contains(err.Error(), "line 50 of mote-0") || !strings.Contains(err.Error(), "status 500") {
			t.Errorf("the error does not name what failed: %v", err)
		}
		if result.Accepted != 48 || result.Elapsed > time.Minute {
			t.Errorf("%+v, want 48 rows within a minute", result)
		}
	})
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
	result, err := nodesim.Replay(ctx, g.listen(t), recorded(t, 4, 5000), nil, time.Now)
	if !errors.Is(err, context.Canceled) || result.Accepted > 1000 {
		t.Errorf("%+v, %v, want the context's error at once", result, err)
	}
}
