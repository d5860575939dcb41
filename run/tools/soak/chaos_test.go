package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/proxytest"
	"coldaisle.dev/shared/tooltest"
)

// scenario is a failure with a name, and its expected outcome.
type scenario struct {
	name, expected string
	// run starts the nodes, breaks and repairs what the scenario names, and returns a summary for the table.
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

// TestChaos runs every scenario at night, as `make chaos` does, and prints the table. By day it runs the first one:
// TestSoak breaks each component once, and the components' own tests break what they stand on.
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
		must.Fail(t, "stopped", env.cluster.Stop(), nil)
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
	must.Fail(env.t, "finished", env.finish(), nil)
	sum := env.ledger.Sum()
	must.Hold(env.t, sum.Alerted != 0, "no alert was due: the scenario shows nothing of them")
	return sum
}

// finish is end, but returns the ledger's differences instead of failing the test.
func (env *environment) finish() error {
	env.t.Helper()
	sleep(3 * time.Second) // of normal load after the outage
	env.stopNodes()
	must.Do(env.t, env.quiesce(env.t.Context()))
	db := env.cluster.Database.Pool
	must.Fail(env.t, "incidents", must.Err(ledger.Incidents(env.t.Context(), db)), nil)
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
	must.Hold(t, len(missing) == 0, "never happened: %q", missing)
}

// TestUserTrainsOnce browses past the time of the training run.
func TestUserTrainsOnce(t *testing.T) {
	t.Parallel()
	var verdicts, runs atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			verdicts.Add(1)
		case r.URL.Path == "/api/v1/ml/retraining/trigger":
			runs.Add(1)
		}
		_, _ = io.WriteString(w, "null")
	}))
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(t.Context())
	var browsing sync.WaitGroup
	u := &users{api: server.URL, clock: time.Now}
	browsing.Go(func() {
		u.browse(ctx, &user{APIUser: &system.APIUser{Base: server.URL}, nodes: []string{"n1"}}, time.Now())
	})
	must.Eventually(t, "a verdict after the run", func() bool { return runs.Load() > 0 && verdicts.Load() > 2 })
	stop()
	browsing.Wait()
	must.Equal(t, "runs", int64(1), runs.Load())
}

// TestFailuresLast has a soak longer than its rooms take to fail, one after the other.
func TestFailuresLast(t *testing.T) {
	t.Parallel()
	site := must.Get(nodesim.New(nodesim.Config{Nodes: 8, Clock: time.Now, Log: logging.Discard()}))(t)
	begin := time.Now()
	s := soak{duration: time.Hour, speed: 5, clock: func() time.Time { return begin }}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.runSite(ctx, site)
	for at := 75 * time.Minute; at < 5*time.Hour; at += time.Hour {
		got := [2]bool{site.Faulty("sim-r2-n1", begin.Add(at)), site.Faulty("sim-r2-n1", begin.Add(at+time.Minute))}
		must.Equal(t, fmt.Sprintf("the second room has failed %s, and a minute later", at), [2]bool{false, true}, got)
	}
}

const alertsPath = "/api/v1/alerts/active"

func always() bool { return true }

func databaseGone(t scenarioTest) string {
	env := begin(t.T, nil)
	env.cluster.Database.Server.Crash()
	before := env.stats()
	refused := 500
	env.until("the API says that it fails", func() bool { return env.call(alertsPath) == refused })
	sleep(5 * time.Second)
	must.Equal(t, "posts of nodes that failed without a database", int64(0), env.stats().Failed-before.Failed)
	must.Do(t, env.cluster.Database.Recover(t.Context()))
	after := env.waitRecovered(alertsPath)
	return fmt.Sprintf("API %d, recovered after %.1f s; %s", refused, after.Seconds(), exact(env.end()))
}

func databaseHangs(t scenarioTest) string {
	env := begin(t.T, nil)
	env.cluster.Database.Proxy.SetMode(proxytest.Stall)
	env.observe(always)
	env.cluster.Database.Proxy.SetMode(proxytest.Forward)
	after := env.waitRecovered(alertsPath)
	return fmt.Sprintf("API recovered after %.1f s; %s", after.Seconds(), exact(env.end()))
}

// mountSmall mounts a file system of size bytes at dir. Without the right to mount it skips the test, but not in CI.
func mountSmall(t *testing.T, dir string, size int) {
	t.Helper()
	must.Do(t, os.MkdirAll(dir, 0o755))
	output, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "tmpfs", dir).CombinedOutput()
	if err != nil {
		tooltest.Unable(t, "no right to mount a small file system: %v: %s", err, output)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.WithoutCancel(t.Context()), "umount", "--lazy", dir).Run() })
}

func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	ballast := must.Get(os.Create(path))(t)
	if _, err := io.Copy(ballast, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the file system does not fill: %v", err)
	}
	_ = ballast.Close()
	return func() { _ = os.Remove(path) }
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func databaseFull(t scenarioTest) string {
	dir := folder(t.T)
	mountSmall(t.T, filepath.Join(dir, "postgres"), 256<<20)
	env := begin(t.T, func(s *soak) { s.dir = dir })
	free := fill(t.T, filepath.Join(dir, "postgres"))
	before, stored := env.stats(), env.storedRows()
	// Until it shows: a page or two may still be free.
	env.until("messages are refused", func() bool { return env.cluster.queue.Counts().Refused > 20 })
	sleep(2 * time.Second)
	must.Equal(t, "posts of nodes that failed while the disk was full", int64(0), env.stats().Failed-before.Failed)
	free()
	env.until("readings are stored though the disk was full", func() bool {
		select {
		case <-env.cluster.Database.Server.Exited():
			must.Do(t, env.cluster.Database.Recover(t.Context()))
		default:
		}
		return env.storedRows() > stored
	})
	after := env.waitRecovered(alertsPath)
	return fmt.Sprintf("API recovered after %.1f s; %s", after.Seconds(), exact(env.end()))
}

// storedRows counts the readings stored, -1 when the database does not answer.
func (env *environment) storedRows() int {
	ctx, cancel := context.WithTimeout(env.t.Context(), time.Minute)
	defer cancel()
	rows := -1
	_ = env.cluster.Database.Pool.QueryRow(ctx, `SELECT count(*) FROM sensor_data.readings`).Scan(&rows)
	return rows
}

func gatewayFull(t scenarioTest) string {
	dir := folder(t.T)
	for site := range sites {
		mountSmall(t.T, filepath.Join(dir, fmt.Sprintf("gateway-%d", site+1)), 64<<10)
	}
	env := begin(t.T, func(s *soak) { s.dir = dir; s.speed = 60 })
	env.cluster.gatewayProxy.SetMode(proxytest.Refuse)
	dropped := func() (n int64) {
		for _, g := range env.cluster.Gateways {
			if h, err := doctor.Health(t.Context(), g.URL); err == nil {
				n += h.Outbox.Dropped
			}
		}
		return n
	}
	env.until("the disk is full", func() bool { return dropped() >= 50 })
	env.cluster.gatewayProxy.SetMode(proxytest.Forward)
	err := env.finish()
	sum, counted := env.ledger.Sum(), dropped()
	must.Hold(t, int64(sum.Unexplained) <= counted,
		"%d readings are missing, and the gateways count %d: %v", sum.Unexplained, counted, err)
	must.Hold(t, err == nil || strings.Count(err.Error(), "not stored") == strings.Count(err.Error(), "reading "),
		"something else than missing readings: %v", err)
	return fmt.Sprintf("%d readings, %d could not be kept and were counted, %d of them are missing", sum.Sent, counted, sum.Unexplained)
}

func pubSubSlow(t scenarioTest) string {
	env := begin(t.T, nil)
	env.cluster.gatewayProxy.SetLatency(200 * time.Millisecond)
	accepted := env.observe(always)
	env.cluster.gatewayProxy.SetLatency(0)
	return fmt.Sprintf("%d answers over 0.4 s late, none failed; %s", accepted, exact(env.end()))
}

func pubSubGone(t scenarioTest) string {
	env := begin(t.T, func(s *soak) { s.environ = nil })
	env.cluster.gatewayProxy.SetMode(proxytest.Stall)
	before, backlog := env.stats(), 0
	env.until("both gateways keep readings and tell their nodes so", func() bool {
		backlog = 0
		for _, g := range env.cluster.Gateways {
			h, err := doctor.Health(t.Context(), g.URL)
			if err != nil || h.Publishing.Up || h.Outbox.Readings < 5 {
				return false
			}
			backlog += h.Outbox.Readings
		}
		return env.stats().Failed-before.Failed >= 10
	})
	env.cluster.gatewayProxy.SetMode(proxytest.Forward)
	return fmt.Sprintf("backlog of %d delivered; %s", backlog, exact(env.end()))
}

// settableClock is a clock that a test sets.
type settableClock struct{ offset atomic.Int64 }

func (c *settableClock) now() time.Time          { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *settableClock) by(offset time.Duration) { c.offset.Store(int64(offset)) }

func clockJump(t scenarioTest) string {
	var clock settableClock
	s, err := system.Start(t.Context(), system.Options{DataDir: folder(t.T), Clock: clock.now, Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(t, err)
	t.Cleanup(func() { must.Do(t, s.Stop()) })
	var series bytes.Buffer
	_, _ = series.WriteString("node_id,timestamp,temperature,humidity\n")
	for i := range 500 {
		for node := range 4 {
			_, _ = fmt.Fprintf(&series, "jumpy-%d,%s,%d,40\n", node, time.Unix(int64(30*i), 0).UTC().Format(time.RFC3339), 20+(i*7)%45)
		}
	}
	// While it is sent the clock is set to and fro.
	var setting sync.WaitGroup
	set := 0
	ctx, stop := context.WithCancel(t.Context())
	setting.Go(func() {
		for i := 0; pause.For(ctx, 30*time.Millisecond) == nil; i++ {
			if i == 0 && !anyStored(ctx, s) {
				i = -1 // sensors are still being made, with a token that a jump would end
				continue
			}
			set++
			// Never to before the sensors were made: what is dated before that belongs to nobody and raises no alert.
			clock.by([]time.Duration{10 * time.Minute, 24 * time.Hour, 10 * time.Minute, 5 * time.Minute, 5*time.Minute + 300*time.Millisecond}[i%5])
		}
	})
	report, err := replay(t.Context(), s, &series, time.Now, 25*time.Hour)
	stop()
	setting.Wait()
	must.Hold(t, err == nil, "%v\n%s", err, report)
	must.Hold(t, set >= 3, "the clock was set %d times only", set)
	return fmt.Sprintf("set %d times; %d readings, %d alerts, exact", set, report.Sent, report.Alerted)
}

// anyStored reports whether any reading is stored.
func anyStored(ctx context.Context, s *system.System) (one bool) {
	err := s.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM sensor_data.readings)`).Scan(&one)
	return err == nil && one
}

func twoGateways(t scenarioTest) string {
	// Nodes find another gateway when theirs no longer answers, as they would by multicast DNS.
	var env *environment
	var moved atomic.Int64
	resolve := func(site int) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			for _, i := range []int{site, 1 - site} {
				g := env.cluster.Gateways[i]
				if _, err := doctor.Health(ctx, g.URL); err == nil {
					if i != site {
						moved.Add(1)
					}
					return g.URL, nil
				}
			}
			return "", fmt.Errorf("no gateway at site %d", site+1)
		}
	}
	env = prepared(t.T, func(s *soak) { s.resolve = resolve })
	env.send()
	before := env.stats()
	must.Get(env.cluster.Gateways[1].End(syscall.SIGKILL))(t)
	env.until("nodes have moved and send", func() bool { return moved.Load() > 0 && env.stats().Accepted-before.Accepted >= 20 })
	must.Do(t, env.cluster.Gateways[1].Start(t.Context()))
	sum := env.end()
	return fmt.Sprintf("%d nodes moved, %d rows twice; %s", moved.Load(), sum.Duplicated, exact(sum))
}

func halfOpen(t scenarioTest) string {
	env := begin(t.T, nil)
	gateway := env.cluster.Gateways[0]
	before := openFiles(t.T, gateway)
	const many = 300
	var connections []net.Conn
	for i := range many {
		conn := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(gateway.URL, "http://")))(t)
		defer func() { _ = conn.Close() }()
		// A third says nothing, a third stops in the header, a third in the body.
		_, _ = conn.Write([]byte([]string{"", "POST /api/v1/message HTTP/1.1\r\nHost: g", "POST /api/v1/message HTTP/1.1\r\nHost: g\r\nContent-Length: 90\r\n\r\n{"}[i%3]))
		connections = append(connections, conn)
	}
	start, began := env.stats(), time.Now()
	for i, c := range connections {
		_ = c.SetReadDeadline(began.Add(5 * time.Minute))
		if _, err := io.ReadAll(c); err != nil && os.IsTimeout(err) {
			t.Fatalf("connection %d is still open", i)
		}
	}
	took := time.Since(began)
	env.until("their files are closed", func() bool { return openFiles(t.T, gateway) <= before+30 })
	must.Equal(t, "posts of others that failed meanwhile", int64(0), env.stats().Failed-start.Failed)
	return fmt.Sprintf("%d dropped within %.0f s; %s", many, took.Seconds(), exact(env.end()))
}

func openFiles(t *testing.T, p *processtest.Process) int {
	t.Helper()
	u := usage{Process: p}
	if u.sample(); len(u.files) == 0 {
		tooltest.Skip(t, "no /proc, which is Linux's")
	}
	return int(u.files[0])
}
