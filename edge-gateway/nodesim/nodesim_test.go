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
	"coldaisle.dev/edge-gateway/nodesim/fault"
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
		s := pretend(t, g, nodesim.Config{Nodes: 6, Prefix: "lab"}, 30*time.Minute-time.Second)
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
		must.Equal(t, "readings and their answers", nodesim.Stats{Accepted: 360}, s.Stats())
		if beats := len(g.calls("heartbeat")); beats < 6*28 {
			t.Errorf("%d heartbeats of 6 nodes in 30 minutes, want one in 30 to 60 s", beats)
		}
	})
}

// TestHosts has a source's host beside a node.
func TestHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		pretend(t, g, nodesim.Config{Nodes: 2, Hosts: 1}, 10*time.Minute-time.Second)
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
			pretend(t, g, nodesim.Config{Nodes: 1}, 10*time.Minute)
			calls := g.calls("register")
			must.Equal(t, fmt.Sprintf("registrations, of which %d fail", fail), 1+retries, len(calls))
			for i := range retries {
				must.Equal(t, fmt.Sprintf("pause before retry %d", i), time.Second<<i, calls[i+1].At.Sub(calls[i].At))
			}
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
		const lost = 19 - 4
		must.Equal(t, "readings that were accepted", int64(60-lost), s.Stats().Accepted)
	})
}

// page is another machine that has the gateway's address: a proxy, a hotspot.
type page struct {
	*gateway

	status int
}

func (p page) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "proxy" {
		return p.gateway.RoundTrip(r)
	}
	recorder := httptest.NewRecorder()
	recorder.WriteHeader(p.status)
	_, _ = recorder.WriteString("<!DOCTYPE html><title>Sign in</title>")
	return recorder.Result(), nil
}

// Whatever status a page has, a node asks for the name again, and drops no reading.
func TestPageOfAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 302, 400, 404, 413, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			config := nodesim.Config{Nodes: 1, Transport: page{&gateway{}, status}, Clock: time.Now, Resolve: func(context.Context) (string, error) {
				if time.Since(begin) < 70*time.Second {
					return "http://proxy", nil
				}
				return "http://gateway", nil
			}}
			s := must.Get(nodesim.New(config))(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute-time.Second)
			defer cancel()
			must.Do(t, s.Run(ctx))
			got := [2]int64{s.Stats().Accepted, s.Stats().Rejected}
			must.Equal(t, fmt.Sprintf("readings accepted and rejected after a page with %d", status), [2]int64{10, 0}, got)
		})
	}
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
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // registered after two, its first reading is on its way
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
		"negative nodes": {Gateway: "http://gateway:8080", Nodes: -1},
		"speed too high": {Gateway: "http://gateway:8080", Nodes: 2, Speed: 1e6},
		"speed under 0":  {Gateway: "http://gateway:8080", Nodes: 2, Speed: -1},
	} {
		config.Clock = time.Now
		_, err := nodesim.New(config)
		must.Equal(t, name+" is taken", false, err == nil)
	}
}

// A fault that is sown is measured in its room, at its time, which passes faster at a higher speed.
func TestSow(t *testing.T) {
	t.Parallel()
	for _, speed := range []float64{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{}
			s := must.Get(nodesim.New(nodesim.Config{Nodes: 6, Speed: speed, Gateway: "http://gateway", Transport: g, Clock: time.Now}))(t)
			begin := time.Now()
			failing := fault.Fault{Kind: fault.Cooling, Room: "room2", Start: begin.Add(10 * time.Minute), End: begin.Add(20 * time.Minute), Peak: 40, Constant: time.Minute}
			s.Sow(failing)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(float64(30*time.Minute)/speed))
			defer cancel()
			must.Do(t, s.Run(ctx))
			hot := slices.DeleteFunc(g.calls("message"), func(c call) bool { return *c.Temperature <= 50 })
			must.Equal(t, "hot readings of each of two nodes in ten minutes", true, len(hot) >= 2*16)
			for _, c := range hot {
				must.Equal(t, "the room that is hot", "sim-r2", c.NodeID[:len("sim-r2")])
				at := begin.Add(time.Duration(float64(c.At.Sub(begin)) * speed))
				must.Equal(t, "it is hot as the fault has it", true, failing.Affects(at) && s.Faulty(c.NodeID, at))
			}
			must.Equal(t, "the other room is faulty", false, s.Faulty("sim-r1-n1", failing.Start))
		})
	}
}

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
		must.Do(t, nodesim.Replay(t.Context(), address, recorded(t, 5, 200), nil, time.Now))
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
		must.Do(t, nodesim.Replay(t.Context(), "http://gateway", recorded(t, 3, 100), g, time.Now))
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
		began := time.Now()
		err := nodesim.Replay(t.Context(), "http://gateway", recorded(t, 1, 100), g, time.Now)
		must.Contain(t, "the error", fmt.Sprint(err), "line 50 of mote-0", "answered 500")
		must.Equal(t, "it gave up within a minute", true, time.Since(began) <= time.Minute)
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
	err := nodesim.Replay(ctx, g.listen(t), recorded(t, 4, 5000), nil, time.Now)
	if sent := len(g.calls("message")); !errors.Is(err, context.Canceled) || sent > 1000 {
		t.Errorf("%d rows, %v, want the context's error at once", sent, err)
	}
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
