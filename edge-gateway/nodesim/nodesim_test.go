package nodesim_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/must"
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
			if before, ok := last[c.NodeID]; ok && c.At.Sub(before) != 30*time.Second {
				t.Errorf("%s sent after %s, want 30s", c.NodeID, c.At.Sub(before))
			}
			last[c.NodeID] = c.At
			if !fourBytes.MatchString(c.ID) || ids[c.ID] {
				t.Errorf("message id %q is not four bytes of its own", c.ID)
			}
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
		if stats.Registered != 6 || stats.Accepted != 360 || stats.Failed != 0 || stats.Retried != 0 || stats.Heartbeats < 6*28 {
			t.Errorf("stats do not tell what happened: %+v", stats)
		}
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
				if path == "readings" && (c.Temperature == nil || c.Humidity != nil) {
					t.Errorf("a host sent %+v", c)
				}
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
	for name, c := range map[string]struct {
		fail       int // registrations answered with 500
		want       []time.Duration
		registered int64
	}{
		"at once":               {0, nil, 1},
		"after three retries":   {3, []time.Duration{1, 2, 4}, 1},
		"after the fifth retry": {5, []time.Duration{1, 2, 4, 8, 16}, 1},
		"never":                 {100, []time.Duration{1, 2, 4, 8, 16}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				failed := 0
				g := &gateway{answer: func(_ int, heard call) int {
					if heard.Path == "/api/v1/register" && failed < c.fail {
						failed++
						return http.StatusInternalServerError
					}
					return http.StatusOK
				}}
				s := pretend(t, g, nodesim.Config{Nodes: 1}, 10*time.Minute)
				calls := g.calls("register")
				var pauses []time.Duration
				for i := 1; i < len(calls); i++ {
					pauses = append(pauses, calls[i].At.Sub(calls[i-1].At)/time.Second)
				}
				must.Equal(t, "seconds between registrations", c.want, pauses)
				must.Equal(t, "registered", c.registered, s.Stats().Registered)
				if len(g.calls("message")) == 0 {
					t.Error("the node sent no reading")
				}
			})
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

// A node that is switched off hears the answer that it waits for: what a gateway has taken
// is counted.
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
	for name, change := range map[string]func(*nodesim.Config){
		"no gateway":     func(c *nodesim.Config) { c.Gateway = "" },
		"gateway no URL": func(c *nodesim.Config) { c.Gateway = "192.168.1.20:8080" },
		"negative nodes": func(c *nodesim.Config) { c.Nodes = -1 },
		"speed too high": func(c *nodesim.Config) { c.Speed = 1e6 },
		"speed under 0":  func(c *nodesim.Config) { c.Speed = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := nodesim.Config{Gateway: "http://gateway:8080", Nodes: 2, Clock: time.Now}
			must.Get(nodesim.New(config))(t)
			change(&config)
			if _, err := nodesim.New(config); err == nil {
				t.Error("New took it")
			}
		})
	}
}
