package nodesim_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/nodesim"
)

// rogues runs misbehaving clients and no node for a minute of fake time.
func rogues(t *testing.T, kinds ...nodesim.Misbehaviour) (*gateway, nodesim.Rogue) {
	t.Helper()
	g := &gateway{}
	s := pretend(t, g, nodesim.Config{Misbehave: kinds}, time.Minute)
	return g, s.Stats().Rogue
}

func TestGarbage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, counted := rogues(t, nodesim.Garbage)
		if counted.Requests < 500 || counted.Requests > 700 {
			t.Errorf("%d requests in a minute, want ten a second", counted.Requests)
		}
		for _, path := range []string{"register", "message", "heartbeat"} {
			if len(g.calls(path)) == 0 {
				t.Errorf("%s got no garbage", path)
			}
		}
	})
}

func TestFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, counted := rogues(t, nodesim.Flood)
		if counted.Requests < 55_000 || counted.Requests > 61_000 {
			t.Errorf("%d requests in a minute, want about 60000", counted.Requests)
		}
		for _, c := range g.calls("message") {
			if c.Status != http.StatusOK || c.NodeID != "sim-flood" {
				t.Fatalf("a flood of invalid readings: %+v", c)
			}
		}
	})
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := rogues(t, nodesim.Duplicates)
		times := map[string]int{}
		for _, c := range g.calls("message") {
			times[c.ID]++
		}
		if len(times) < 50 || len(times) > 61 {
			t.Errorf("%d ids in a minute, want one a second", len(times))
		}
		three := 0
		for _, n := range times {
			if n == 3 {
				three++
			}
		}
		if three < len(times)-1 {
			t.Errorf("%d of %d ids came three times", three, len(times))
		}
	})
}

func TestClockJumps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := rogues(t, nodesim.ClockJumps)
		heard := g.calls("message")
		if len(heard) < 200 || len(heard) > 300 {
			t.Errorf("%d readings in a minute, want bursts of 0, 3, 6 and 9", len(heard))
		}
		for _, c := range heard {
			if c.Status != http.StatusOK || c.Temperature == nil || c.Humidity == nil {
				t.Fatalf("a jumping clock made the reading itself invalid: %+v", c)
			}
		}
	})
}

func TestOversized(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, counted := rogues(t, nodesim.Oversized)
		if counted.Requests < 50 || counted.Refused != counted.Requests {
			t.Errorf("a limit of 64 KiB refused %d of %d", counted.Refused, counted.Requests)
		}
		if len(g.calls("message")) == 0 {
			t.Error("nothing was sent")
		}
	})
}

func TestSlowloris(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ReadTimeout = 1500 * time.Millisecond
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	s, err := nodesim.New(nodesim.Config{Gateway: server.URL, Misbehave: []nodesim.Misbehaviour{nodesim.Slowloris}, Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- s.Run(ctx) }()
	eventually(t, "16 connections that the server cut", func() bool { return s.Stats().Rogue.Refused >= 16 })
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	// 16 at a time, each of which lasts for the server's timeout.
	if got, most := opened.Load(), 16*int64(2+time.Since(began)/server.Config.ReadTimeout); got < 16 || got > most {
		t.Errorf("%d connections were opened, want 16 to %d", got, most)
	}
}

func TestParseMisbehaviours(t *testing.T) {
	t.Parallel()
	cases := map[string][]nodesim.Misbehaviour{
		"":                   nil,
		"garbage, slowloris": {nodesim.Garbage, nodesim.Slowloris},
		"all":                nodesim.Misbehaviours(),
	}
	for list, want := range cases {
		got, err := nodesim.ParseMisbehaviours(list)
		if err != nil {
			t.Errorf("%q: %v", list, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", list, diff)
		}
	}
	if _, err := nodesim.ParseMisbehaviours("garbage,politeness"); err == nil {
		t.Error("politeness passed for misbehaviour")
	}
}
