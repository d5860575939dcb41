package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/run/tools/soak/cluster"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

// scenario is a named fault and what must come of it.
type scenario struct {
	name     string
	expected string
	// play breaks and mends what it names while nodes send, and returns what it
	// saw. It runs the nodes itself.
	play func(t trial) string
}

// trial is the test that a scenario is.
type trial struct{ *testing.T }

func scenarios() []scenario {
	return []scenario{
		{"database gone and back", "nodes hear 200 throughout; the API says 500 and recovers; ledger exact", databaseGone},
		{"database hangs", "nodes hear 200 throughout; the API recovers; ledger exact", databaseHangs},
		{"database's disk full", "nodes hear 200 throughout; what waited is stored once there is room; ledger exact", databaseFull},
		{"gateway's disk full", "500, and /health counts each reading that could not be kept; nothing else is lost", gatewayFull},
		{"Pub/Sub slow", "nodes hear 200, later; nothing goes to the outbox; ledger exact", pubSubSlow},
		{"Pub/Sub gone and back", "500 at once after the first; the outbox drains; ledger exact", pubSubGone},
		{"clock jump", "every reading stored once under a time of its own, every alert raised", clockJump},
		{"BigQuery quota errors", "ingest refuses, Pub/Sub delivers again; every reading is there", quotaErrors},
		{"two gateways", "nodes go on at the other one; rows twice only where the dead one never answered", twoGateways},
		{"half-open connections", "the gateway drops them; nodes beside them hear 200; ledger exact", halfOpen},
	}
}

// TestChaos plays every scenario and prints the table; `make chaos` is this
// test alone.
func TestChaos(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	var mu sync.Mutex
	seen := map[string]string{}
	t.Cleanup(func() {
		var table bytes.Buffer
		out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(out, "fault\texpected\tseen\t")
		for _, s := range scenarios() {
			if text, ok := seen[s.name]; ok {
				_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t\n", s.name, s.expected, text)
			}
		}
		_ = out.Flush()
		t.Logf("\n%s", table.String())
	})
	for _, s := range scenarios() {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			text := "FAILED"
			defer func() {
				if t.Skipped() {
					text = "skipped"
				} else if t.Failed() {
					text = "FAILED: " + text
				}
				mu.Lock()
				defer mu.Unlock()
				seen[s.name] = text
			}()
			text = s.play(trial{t})
		})
	}
}

// programs are built once for all scenarios.
var programs = sync.OnceValues(func() (cluster.Programs, error) {
	dir, err := os.MkdirTemp("", "coldaisle-chaos-")
	if err != nil {
		return nil, err
	}
	built = dir
	return cluster.Build(context.Background(), dir)
})

var built string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// world is a running system with nodes that send.
type world struct {
	soak

	t    *testing.T
	ctx  context.Context //nolint:containedctx // of the nodes' life
	stop context.CancelFunc
	life sync.WaitGroup
}

// begin starts a system of 60 nodes on two sites that send 30 readings a second
// in all, the last seconds of them over the limits.
func begin(t *testing.T, change func(*soak)) *world {
	t.Helper()
	w := prepared(t, change)
	w.send()
	return w
}

// prepared is a system whose nodes do not send yet.
func prepared(t *testing.T, change func(*soak)) *world {
	t.Helper()
	paths, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, soak: soak{
		lasting: 8 * time.Second, nodes: 60, speed: 15, seed: 1, programs: paths, out: t.Output(), clock: time.Now,
	}}
	if w.dir == "" {
		w.dir = folder(t)
	}
	if change != nil {
		change(&w.soak)
	}
	err = w.start(t.Context(), logging.Discard())
	pgtest.SkipUnlessAvailable(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w.ctx, w.stop = ctx, stop
	t.Cleanup(func() {
		w.halt()
		if err := w.plant.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			w.logs()
		}
	})
	return w
}

// send lets the nodes live and waits until they have got going.
func (w *world) send() {
	w.t.Helper()
	for _, site := range w.sites {
		w.life.Go(func() { _ = site.Run(w.ctx) })
	}
	for deadline := time.Now().Add(time.Minute); w.stats().Accepted < 100; pass(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("the nodes do not get going: %s", w.stats())
		}
	}
}

// folder is one that the database's account may pass.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// logs shows the end of what each program has said.
func (w *world) logs() {
	for _, p := range w.plant.Processes() {
		said, _ := os.ReadFile(p.Log())
		lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
		w.t.Logf("%s:\n%s", p.Name, bytes.Join(lines[max(0, len(lines)-8):], []byte("\n")))
	}
}

// pass lets time go by; what is broken stays broken for so long.
func pass(d time.Duration) { <-time.After(d) }

// stats adds up the sites.
func (w *world) stats() nodesim.Stats {
	var sum nodesim.Stats
	for _, site := range w.sites {
		s := site.Stats()
		sum.Nodes += s.Nodes
		sum.Accepted += s.Accepted
		sum.Failed += s.Failed
		sum.Retried += s.Retried
		sum.Rejected += s.Rejected
	}
	return sum
}

// during plays a fault for a time and returns what nodes heard meanwhile.
func (w *world) during(lasting time.Duration) (accepted, failed int64) {
	before := w.stats()
	pass(lasting)
	after := w.stats()
	return after.Accepted - before.Accepted, after.Failed - before.Failed
}

func (w *world) halt() {
	w.stop()
	w.life.Wait()
}

// end stops the nodes, brings everything to rest and checks the ledger.
func (w *world) end() ledger.Totals {
	w.t.Helper()
	if err := w.finish(); err != nil {
		w.t.Error(err)
	}
	sum := w.book.Sum()
	if sum.Alerted == 0 {
		w.t.Error("no alert was due: the scenario shows nothing of them")
	}
	return sum
}

// finish does so and returns what does not add up.
func (w *world) finish() error {
	w.t.Helper()
	pass(3 * time.Second) // of everyday life after the fault
	w.halt()
	if err := w.rest(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	db, err := w.plant.Database.Connect(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(w.t.Context())) }()
	return w.book.Close(w.t.Context(), db)
}

// ask calls the API as a person with a browser, and returns the status.
func (w *world) ask(path string) int {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	status, _ := w.people.customers[0].Call(ctx, "GET", path, nil, nil)
	return status
}

// recovers waits until the API answers again.
func (w *world) recovers(path string) time.Duration {
	w.t.Helper()
	for began := time.Now(); ; pass(50 * time.Millisecond) {
		if w.ask(path) == 200 {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			w.t.Fatalf("the API does not recover: %d", w.ask(path))
		}
	}
}

func exact(sum ledger.Totals) string {
	return fmt.Sprintf("%d readings, %d alerts, exact", sum.Sent, sum.Alerted)
}

// TestScenarioNames holds that each scenario can be chosen by its name.
func TestScenarioNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(scenarios()) {
		t.Errorf("two scenarios have one name: %v", names)
	}
}
