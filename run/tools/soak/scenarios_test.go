package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/proxytest"
	"coldaisle.dev/shared/tooltest"
)

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

// mountSmall mounts a file system of size bytes at dir. Without the right to mount it
// skips the test, but not in CI.
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
	if int64(sum.Unexplained) > counted {
		t.Errorf("%d readings are missing, and the gateways count %d: %v", sum.Unexplained, counted, err)
	}
	if err != nil && strings.Count(err.Error(), "not stored") != strings.Count(err.Error(), "reading ") {
		t.Errorf("something else than missing readings: %v", err)
	}
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
			// Never to before the sensors were made: what is dated before that belongs to
			// nobody and raises no alert.
			clock.by([]time.Duration{10 * time.Minute, 24 * time.Hour, 10 * time.Minute, 5 * time.Minute, 5*time.Minute + 300*time.Millisecond}[i%5])
		}
	})
	report, err := replay(t.Context(), s, &series, time.Now, 25*time.Hour)
	stop()
	setting.Wait()
	if err != nil {
		t.Errorf("%v\n%s", err, report)
	}
	if set < 3 {
		t.Errorf("the clock was set %d times only", set)
	}
	return fmt.Sprintf("set %d times; %d readings, %d alerts, exact", set, report.Sent, report.Alerted)
}

// anyStored reports whether any reading is stored.
func anyStored(ctx context.Context, s *system.System) (one bool) {
	err := s.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM sensor_data.readings)`).Scan(&one)
	return err == nil && one
}

func twoGateways(t scenarioTest) string {
	// Nodes find another gateway when theirs no longer answers, as they would by
	// multicast DNS.
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
