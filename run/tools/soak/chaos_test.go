package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/tooltest"
)

// scenario is a failure with a name, and its expected outcome.
type scenario struct {
	name     string
	expected string
	// run starts the nodes, breaks and repairs what the scenario names, and returns
	// a summary for the table.
	run func(t scenarioTest) string
}

// scenarioTest is the test of one scenario.
type scenarioTest struct{ *testing.T }

func scenarios() []scenario {
	return []scenario{
		{"database's disk full", "nodes get 200 throughout; waiting messages are stored once there is space; ledger exact", databaseFull},
		{"database gone and back", "nodes get 200 throughout; the API says 500 and recovers; ledger exact", databaseGone},
		{"database hangs", "nodes get 200 throughout; the API recovers; ledger exact", databaseHangs},
		{"gateway's disk full", "500, and /health counts each dropped reading; nothing else is lost", gatewayFull},
		{"Pub/Sub slow", "nodes get 200, later; nothing goes to the outbox; ledger exact", pubSubSlow},
		{"Pub/Sub gone and back", "500 at once after the first; the outbox drains; ledger exact", pubSubGone},
		{"clock jump", "every reading stored once under a time of its own, every alert raised", clockJump},
		{"two gateways", "nodes move to the other one; duplicate rows only of requests without an answer", twoGateways},
		{"half-open connections", "the gateway drops them; other nodes get 200; ledger exact", halfOpen},
	}
}

// TestChaos runs every scenario at night, as `make chaos` does, and prints the table. By
// day it runs the first one: TestSoak breaks each component once, and the components' own
// tests break what they stand on.
func TestChaos(t *testing.T) {
	t.Parallel()
	run := scenarios()
	if !tooltest.Nightly() {
		run = run[:1]
	}
	var mu sync.Mutex
	seen := map[string]string{}
	t.Cleanup(func() {
		var table bytes.Buffer
		out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(out, "scenario\texpected\tseen\t")
		for _, s := range run {
			if text, ok := seen[s.name]; ok {
				_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t\n", s.name, s.expected, text)
			}
		}
		_ = out.Flush()
		t.Logf("\n%s", table.String())
	})
	for _, s := range run {
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
			text = s.run(scenarioTest{t})
		})
	}
}

// programs is the folder of the programs, built once for all scenarios.
var programs = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "coldaisle-chaos-"); err != nil {
		return "", err
	}
	return built, buildPrograms(context.Background(), built)
})

var built string

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// environment is a running system with nodes that send.
type environment struct {
	soak

	t       *testing.T
	ctx     context.Context //nolint:containedctx // of the nodes' time
	stop    context.CancelFunc
	running sync.WaitGroup
}

// begin starts a system of 60 nodes on two sites that send 30 readings a second
// in all, the last seconds of them over the limits.
func begin(t *testing.T, change func(*soak)) *environment {
	t.Helper()
	env := prepared(t, change)
	env.send()
	return env
}

// prepared is a system whose nodes do not send yet.
func prepared(t *testing.T, change func(*soak)) *environment {
	t.Helper()
	paths := must.Get(programs())(t)
	env := &environment{t: t, soak: soak{
		duration: 8 * time.Second, nodes: 60, speed: 15, seed: 1, dir: folder(t), programs: paths, out: t.Output(), clock: time.Now,
		environ: map[string][]string{"gateway": {"PUBLISH_TIMEOUT=8s"}}, // the machine may be slow, which is not the matter here
	}}
	if change != nil {
		change(&env.soak)
	}
	err := env.start(t.Context(), logging.Discard())
	pgtest.SkipUnlessAvailable(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	env.ctx, env.stop = ctx, stop
	t.Cleanup(func() {
		env.stopNodes()
		if err := env.cluster.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			env.logs()
		}
	})
	return env
}

// send starts the nodes and waits until 100 readings are accepted.
func (env *environment) send() {
	env.t.Helper()
	for _, site := range env.sites {
		env.running.Go(func() { env.runSite(env.ctx, site) })
	}
	env.until("100 readings are accepted", func() bool { return env.stats().Accepted >= 100 })
}

// until waits until something is so.
func (env *environment) until(what string, done func() bool) {
	env.t.Helper()
	must.Eventually(env.t, what, done)
}

// folder returns a temporary folder that the database's account may traverse.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o755))
	return dir
}

// logs shows the end of each program's log.
func (env *environment) logs() {
	for _, p := range env.cluster.Processes() {
		env.t.Logf("%s:\n%s", p.Name, p.LastLines())
	}
}

// sleep waits for a fixed time: how long something stays broken.
func sleep(d time.Duration) { <-time.After(d) }

// stats adds up the sites.
func (env *environment) stats() nodesim.Stats {
	var sum nodesim.Stats
	for _, site := range env.sites {
		s := site.Stats()
		sum.Accepted += s.Accepted
		sum.Failed += s.Failed
		sum.Rejected += s.Rejected
	}
	return sum
}

// observe waits, for six seconds and until at least one post was accepted and something else
// is so. No post may fail meanwhile. It returns how many were accepted.
func (env *environment) observe(done func() bool) (accepted int64) {
	env.t.Helper()
	before := env.stats()
	sleep(6 * time.Second)
	env.until("posts are accepted", func() bool { return env.stats().Accepted > before.Accepted && done() })
	after := env.stats()
	must.Equal(env.t, "posts of nodes that failed", int64(0), after.Failed-before.Failed)
	return after.Accepted - before.Accepted
}

func (env *environment) stopNodes() {
	env.stop()
	env.running.Wait()
}

// end stops the nodes, waits until nothing is in flight and checks the ledger.
func (env *environment) end() ledger.Totals {
	env.t.Helper()
	if err := env.finish(); err != nil {
		env.t.Error(err)
	}
	sum := env.ledger.Sum()
	if sum.Alerted == 0 {
		env.t.Error("no alert was due: the scenario shows nothing of them")
	}
	return sum
}

// finish is end, but returns the ledger's differences instead of failing the test.
func (env *environment) finish() error {
	env.t.Helper()
	sleep(3 * time.Second) // of normal load after the outage
	env.stopNodes()
	must.Do(env.t, env.quiesce(env.t.Context()))
	db := env.cluster.Database.Pool
	if _, err := ledger.Incidents(env.t.Context(), db); err != nil {
		env.t.Error(err)
	}
	return env.ledger.Close(env.t.Context(), db)
}

// call calls the API as a signed-in user and returns the status; 0 for no answer.
func (env *environment) call(path string) int {
	ctx, cancel := context.WithTimeout(env.t.Context(), time.Minute)
	defer cancel()
	err := env.users.all[0].Call(ctx, "GET", path, nil, nil)
	if answered, ok := errors.AsType[*api.StatusError](err); ok {
		return answered.Status
	} else if err != nil {
		return 0
	}
	return 200
}

// waitRecovered waits until the API answers again.
func (env *environment) waitRecovered(path string) time.Duration {
	env.t.Helper()
	began := time.Now()
	env.until("the API recovers", func() bool { return env.call(path) == 200 })
	return time.Since(began)
}

func exact(sum ledger.Totals) string {
	return fmt.Sprintf("%d readings, %d alerts, exact", sum.Sent, sum.Alerted)
}

// TestSoak is a soak in which each component breaks once; `make soak` is the real one. A
// busy machine takes longer for that.
func TestSoak(t *testing.T) {
	t.Parallel()
	programs := must.Get(programs())(t)
	missing := []string{"gateway killed", "API hangs", "database crashes", "database unreachable", "uplink stalled", "backend's Pub/Sub refused", "detect hangs", "ingest killed"}
	for duration := 40 * time.Second; len(missing) > 0 && duration < 5*time.Minute; duration *= 3 {
		var output bytes.Buffer
		s := soak{
			duration: duration, chaosEvery: time.Second, outage: time.Second,
			nodes: 100, speed: 30, seed: 1, dir: folder(t), programs: programs, out: &output, clock: time.Now, events: missing,
		}
		err := s.run(t.Context())
		t.Log(output.String())
		pgtest.SkipUnlessAvailable(t, err)
		missing = slices.DeleteFunc(missing, func(name string) bool { return s.chaos.done[name] > 0 })
	}
	if len(missing) > 0 {
		t.Errorf("never happened: %q", missing)
	}
}
