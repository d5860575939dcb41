package nodesim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/recording"
)

// pretend runs nodes against a gateway in fake time, for so long.
func pretend(t *testing.T, g *gateway, config nodesim.Config, d time.Duration) *nodesim.Simulation {
	t.Helper()
	config.Gateway, config.Transport, config.Clock = "http://gateway", g, time.Now
	s := must.Get(nodesim.New(config))(t)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	must.Do(t, s.Run(ctx))
	return s
}

func TestNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		s := pretend(t, g, nodesim.Config{Nodes: 6, Prefix: "lab", FailureEvery: -1}, 30*time.Minute-time.Second)
		must.Equal(t, "rooms", [][]string{{"lab-r1-n1", "lab-r1-n2", "lab-r1-n3", "lab-r1-n4"}, {"lab-r2-n1", "lab-r2-n2"}}, s.Rooms())

		must.Equal(t, "registrations of 6 nodes", 6, len(g.calls("register")))
		last, ids := map[string]time.Time{}, map[string]bool{}
		fourBytes := regexp.MustCompile(`^[0-9a-f]{8}$`)
		for _, c := range g.calls("message") {
			before, ok := last[c.NodeID]
			must.Hold(t, !ok || c.At.Sub(before) == 30*time.Second, "%s sent after %s, want 30s", c.NodeID, c.At.Sub(before))
			last[c.NodeID] = c.At
			must.Hold(t, fourBytes.MatchString(c.ID) && !ids[c.ID], "message id %q is not four bytes of its own", c.ID)
			ids[c.ID] = true
		}
		must.Equal(t, "readings of 6 nodes in 30 minutes", 6*60, len(ids))
		beat := map[string]time.Time{}
		for _, c := range g.calls("heartbeat") {
			if before, ok := beat[c.NodeID]; ok && (c.At.Sub(before) < 30*time.Second || c.At.Sub(before) > time.Minute) {
				t.Errorf("%s beat after %s, want 30 to 60 s", c.NodeID, c.At.Sub(before))
			}
			beat[c.NodeID] = c.At
		}
		must.Equal(t, "heartbeats of nodes", 6, len(beat))
		stats := s.Stats()
		got := [4]int64{stats.Registered, stats.Accepted, stats.Failed, stats.Retried}
		must.Equal(t, "registered, accepted, failed, retried", [4]int64{6, 360, 0, 0}, got)
		must.Equal(t, "heartbeats", int64(len(g.calls("heartbeat"))), stats.Heartbeats)
		must.Hold(t, stats.Heartbeats >= 6*28,
			"%d heartbeats of 6 nodes in 30 minutes, want one in 30 to 60 s", stats.Heartbeats)
	})
}

// TestHosts has a source's host beside a node.
func TestHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		pretend(t, g, nodesim.Config{Nodes: 2, Hosts: 1, FailureEvery: -1}, 10*time.Minute-time.Second)
		for path, want := range map[string][2]int{"register": {1, 0}, "message": {20, 0}, "readings": {0, 20}} {
			var got [2]int
			for _, c := range g.calls(path) {
				got[strings.Count(c.NodeID, "n2")]++
				must.Hold(t, path != "readings" || c.Temperature != nil && c.Humidity == nil, "a host sent %+v", c)
			}
			must.Equal(t, path+" of node and host", want, got)
		}
		for _, c := range g.calls("heartbeat") {
			must.Equal(t, "who beats", "sim-r1-n1", c.NodeID)
		}
	})
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	for fail, retries := range map[int]int{0: 0, 3: 3, 5: 5, 100: 5} { // registrations answered with 500
		synctest.Test(t, func(t *testing.T) {
			failed := 0
			g := &gateway{answer: func(_ int, heard call) int {
				if heard.Path == "/api/v1/register" && failed < fail {
					failed++
					return http.StatusInternalServerError
				}
				return http.StatusOK
			}}
			s := pretend(t, g, nodesim.Config{Nodes: 1}, 10*time.Minute)
			calls := g.calls("register")
			must.Equal(t, fmt.Sprintf("registrations, of which %d fail", fail), 1+retries, len(calls))
			for i := range retries {
				must.Equal(t, fmt.Sprintf("pause before retry %d", i), time.Second<<i, calls[i+1].At.Sub(calls[i].At))
			}
			must.Equal(t, "it is registered", fail <= retries, s.Stats().Registered == 1)
			must.Equal(t, "it sends readings", true, len(g.calls("message")) > 0)
		})
	}
}

// A long outage, here of 19 readings, must not fill a node's memory, and every reading must still be
// offered once: the gateway keeps what it answers with 500.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := &gateway{answer: func(int, call) int {
			if since := time.Since(start); since > 5*time.Minute && since < 15*time.Minute {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}}
		s := pretend(t, g, nodesim.Config{Nodes: 1}, 30*time.Minute-time.Second)
		ids := map[string]bool{}
		for _, c := range g.calls("message") {
			ids[c.ID] = true
		}
		must.Equal(t, "readings were offered", 60, len(ids))
		if got := s.Stats(); got.Retried == 0 || got.Lost != 19-4 || got.Accepted != 60-got.Lost {
			t.Errorf("after an outage of 19 readings: %+v", got)
		}
	})
}

// slow answers two seconds later, unless the request was given up.
type slow struct{ gateway }

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(2 * time.Second):
		return s.gateway.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// A node that is switched off hears the answer that it waits for: what a gateway has taken is counted.
func TestEndWaitsForAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &slow{}
		s := must.Get(nodesim.New(nodesim.Config{Gateway: "http://gateway", Transport: g, Clock: time.Now, Nodes: 1}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second) // its first reading is on its way
		defer cancel()
		must.Do(t, s.Run(ctx))
		must.Equal(t, "readings that the gateway took", 1, len(g.calls("message")))
		must.Equal(t, "readings that their node knows of", int64(1), s.Stats().Accepted)
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	must.Get(nodesim.New(nodesim.Config{Gateway: "http://gateway:8080", Nodes: 2, Clock: time.Now}))(t)
	for name, config := range map[string]nodesim.Config{
		"no gateway":     {Nodes: 2},
		"gateway no URL": {Gateway: "192.168.1.20:8080", Nodes: 2},
		"negative nodes": {Gateway: "http://gateway:8080", Nodes: -1},
		"speed too high": {Gateway: "http://gateway:8080", Nodes: 2, Speed: 1e6},
		"speed under 0":  {Gateway: "http://gateway:8080", Nodes: 2, Speed: -1},
	} {
		config.Clock = time.Now
		_, err := nodesim.New(config)
		must.Equal(t, name+" is taken", false, err == nil)
	}
}

// For a demonstration the first room turns hot when it is told to, at any speed.
func TestHotAfter(t *testing.T) {
	t.Parallel()
	for _, speed := range []float64{1, 10, 60} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			g := &gateway{}
			pretend(t, g, nodesim.Config{Nodes: 8, Speed: speed, FailureEvery: -1, HotAfter: 25 * time.Second}, 2*time.Minute)
			hot := slices.DeleteFunc(g.calls("message"), func(c call) bool { return *c.Temperature <= 50 })
			if len(hot) == 0 {
				t.Fatalf("at speed %g no room turns hot", speed)
			}
			for _, c := range hot {
				must.Equal(t, "the room that is hot", "sim-r1", c.NodeID[:len("sim-r1")])
			}
			// Noise moves the first reading over the limit by half a minute of the ramp.
			earliest := 25*time.Second - time.Duration(float64(30*time.Second)/speed)
			if over := hot[0].At.Sub(start); over < max(time.Nanosecond, earliest) || over > time.Minute {
				t.Errorf("at speed %g 50 °C passed after %s, want about 25 s and at most an interval more", speed, over)
			}
		})
	}
}

// The cooling of every room fails once in each time of FailureEvery, all of its nodes pass
// the default threshold, and are themselves again an hour after.
func TestCoolingFailsByChance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every, times, nodes = 12 * time.Hour, 6, 8
		start := time.Now()
		g := &gateway{}
		pretend(t, g, nodesim.Config{Nodes: nodes, FailureEvery: every}, times*every)
		hot := map[string][]time.Duration{} // first over 50 °C in each failure
		last := map[string]time.Duration{}
		for _, c := range g.calls("message") {
			if *c.Temperature <= 50 {
				continue
			}
			at := c.At.Sub(start)
			if before, ok := last[c.NodeID]; !ok || at-before > time.Hour {
				hot[c.NodeID] = append(hot[c.NodeID], at)
			}
			last[c.NodeID] = at
		}
		for node, failures := range hot {
			must.Hold(t, len(failures) == times && failures[0] >= every/5,
				"%s passed 50 °C at %v, want once in each %s and not at once", node, failures, every)
		}
		must.Equal(t, "nodes that passed 50 °C", nodes, len(hot))
	})
}

// recorded returns a recording of so many nodes and rows for each, five seconds apart, the nodes taking turns.
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
		result := must.Get(nodesim.Replay(t.Context(), address, recorded(t, 5, 200), nil, time.Now))(t)
		must.Hold(t, result.Accepted == 1000 && result.Rejected == 0 && result.PerSecond() > 0, "%+v", result)
	}
	must.Equal(t, "registrations of 5 nodes in two replays", 10, len(g.calls("register")))
	ids, heard := map[string]bool{}, map[string][]float64{}
	for _, c := range g.calls("message") {
		ids[c.ID] = true
		heard[c.NodeID] = append(heard[c.NodeID], *c.Temperature)
	}
	must.Equal(t, "ids and nodes", [2]int{2000, 5}, [2]int{len(ids), len(heard)})
	for node, temperatures := range heard {
		must.Hold(t, len(temperatures) == 400 && slices.IsSorted(temperatures[:200]),
			"%s sent %d rows, out of order", node, len(temperatures))
	}
}

// Whatever the gateway says on the way, each row is accepted once, under one id, before the node's next.
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
		result := must.Get(nodesim.Replay(t.Context(), "http://gateway", recorded(t, 3, 100), g, time.Now))(t)
		must.Equal(t, "accepted and rejected", [2]int{299, 1}, [2]int{int(result.Accepted), int(result.Rejected)})
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
		// Lines 2 to 301 hold 30 that end in 0.
		must.Equal(t, "rows and requests", [2]int{300, 390}, [2]int{len(ended), len(g.calls("message"))})
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
		must.Contain(t, "the error", fmt.Sprint(err), "line 50 of mote-0", "status 500")
		must.Hold(t, result.Accepted == 48 && result.Elapsed <= time.Minute, "%+v, want 48 rows within a minute", result)
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
	must.Hold(t, errors.Is(err, context.Canceled) && result.Accepted <= 1000,
		"%+v, %v, want the context's error at once", result, err)
}

// call is one request as a gateway saw it.
type call struct {
	At     time.Time
	Path   string
	Status int // what it was answered with

	ID          string   `json:"id"`
	NodeID      string   `json:"node_id"`
	IPAddr      string   `json:"ip_addr"`
	Temperature *float64 `json:"temperature"`
	Humidity    *float64 `json:"humidity"`
}

// gateway is a stand-in that keeps what it hears and answers as told.
type gateway struct {
	mu     sync.Mutex
	heard  []call
	answer func(seen int, c call) int // seen counts earlier calls; nil means success
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{Path: r.URL.Path, At: time.Now(), Status: http.StatusOK}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&c); err != nil {
		c.Status = http.StatusBadRequest
	}
	g.mu.Lock()
	if c.Path == "/api/v1/register" && c.Status == http.StatusOK {
		c.Status = http.StatusCreated
	}
	if g.answer != nil {
		c.Status = g.answer(len(g.heard), c)
	}
	g.heard = append(g.heard, c)
	g.mu.Unlock()
	w.WriteHeader(c.Status)
	_, _ = w.Write([]byte(`{"status":` + strconv.Itoa(c.Status) + `}`))
}

// calls returns what was heard on a path so far.
func (g *gateway) calls(path string) []call {
	g.mu.Lock()
	defer g.mu.Unlock()
	var on []call
	for _, c := range g.heard {
		if c.Path == "/api/v1/"+path {
			on = append(on, c)
		}
	}
	return on
}

// listen serves the gateway over HTTP.
func (g *gateway) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return server.URL
}

// RoundTrip lets nodes reach the gateway without a network, so that time can be a test's own.
func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}
