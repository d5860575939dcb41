package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/run/tools/soak/cluster"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

const alertsPath = "/api/v1/alerts/active"

func databaseGone(t trial) string {
	w := begin(t.T, nil)
	if err := w.plant.Database.Crash(); err != nil {
		t.Fatal(err)
	}
	before := w.stats()
	refused := w.ask(alertsPath)
	if refused != 500 {
		t.Errorf("the API says %d without a database", refused)
	}
	pass(5 * time.Second)
	if failed := w.stats().Failed - before.Failed; failed > 0 {
		t.Errorf("%d posts of nodes failed without a database", failed)
	}
	if err := w.plant.Database.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := w.recovers(alertsPath)
	return fmt.Sprintf("API %d, well %.1f s after; %s", refused, after.Seconds(), exact(w.end()))
}

func databaseHangs(t trial) string {
	w := begin(t.T, nil)
	w.plant.Database.Line.Set(cluster.Silent)
	accepted, failed := w.during(6 * time.Second)
	w.plant.Database.Line.Set(cluster.Whole)
	if failed > 0 || accepted == 0 {
		t.Errorf("%d posts of nodes failed and %d succeeded while the database hung", failed, accepted)
	}
	after := w.recovers(alertsPath)
	return fmt.Sprintf("API well %.1f s after; %s", after.Seconds(), exact(w.end()))
}

// small mounts a file system of so many bytes at a folder. Where that is not
// allowed it skips, but not in CI.
func small(t *testing.T, dir string, size int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mount(dir, size); err != nil && os.Getenv("CI") == "" {
		t.Skipf("no right to mount a small file system: %v", err)
	} else if err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unmount(dir) })
}

// fill fills a file system and returns what frees it again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	ballast, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(ballast, zeros{})
	if !isFull(err) {
		t.Fatalf("the file system does not fill: %v", err)
	}
	_ = ballast.Close()
	return func() { _ = os.Remove(path) }
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func databaseFull(t trial) string {
	dir := folder(t.T)
	small(t.T, filepath.Join(dir, "postgres"), 256<<20)
	w := begin(t.T, func(s *soak) { s.dir = dir })
	free := fill(t.T, filepath.Join(dir, "postgres"))
	before, stored := w.stats(), w.rows()
	// Until it shows: a page or two may still be free.
	for deadline := time.Now().Add(time.Minute); ; pass(100 * time.Millisecond) {
		if waiting := w.plant.PubSub.Bridge.Counts().Refused; waiting > 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was refused on a full disk")
		}
	}
	pass(2 * time.Second)
	if failed := w.stats().Failed - before.Failed; failed > 0 {
		t.Errorf("%d posts of nodes failed while the database's disk was full", failed)
	}
	free()
	for deadline := time.Now().Add(time.Minute); w.rows() <= stored; pass(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is stored though there is room again")
		}
		if w.plant.Database.Ended() {
			if err := w.plant.Database.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	after := w.recovers(alertsPath)
	return fmt.Sprintf("API well %.1f s after; %s", after.Seconds(), exact(w.end()))
}

// rows counts the readings stored, -1 when the database does not answer.
func (w *world) rows() int {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	db, err := w.plant.Database.Connect(ctx)
	if err != nil {
		return -1
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	rows := -1
	_ = db.QueryRow(ctx, `SELECT count(*) FROM sensor_data.readings`).Scan(&rows)
	return rows
}

func gatewayFull(t trial) string {
	dir := folder(t.T)
	for site := range sites {
		small(t.T, filepath.Join(dir, fmt.Sprintf("gateway-%d", site+1)), 64<<10)
	}
	w := begin(t.T, func(s *soak) { s.dir = dir; s.speed = 60 })
	w.plant.PubSub.Sites.Set(cluster.Refused)
	dropped := func() (n int64) {
		for _, g := range w.plant.Gateways {
			if h, err := health(t.Context(), g); err == nil {
				n += h.Outbox.Dropped
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); dropped() < 50; pass(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the disk does not fill")
		}
	}
	w.plant.PubSub.Sites.Set(cluster.Whole)
	err := w.finish()
	sum, counted := w.book.Sum(), dropped()
	if int64(sum.Unexplained) > counted {
		t.Errorf("%d readings are missing, and the gateways count %d: %v", sum.Unexplained, counted, err)
	}
	if err != nil && strings.Count(err.Error(), "not stored") != strings.Count(err.Error(), "reading ") {
		t.Errorf("something else than missing readings: %v", err)
	}
	return fmt.Sprintf("%d readings, %d could not be kept and were counted, %d of them are missing", sum.Sent, counted, sum.Unexplained)
}

func pubSubSlow(t trial) string {
	w := begin(t.T, nil)
	w.plant.PubSub.Sites.Slow(200 * time.Millisecond)
	accepted, failed := w.during(6 * time.Second)
	w.plant.PubSub.Sites.Slow(0)
	if failed > 0 || accepted == 0 {
		t.Errorf("%d posts failed and %d succeeded on the slow line", failed, accepted)
	}
	return fmt.Sprintf("%d answers over 0.4 s late, none failed; %s", accepted, exact(w.end()))
}

func pubSubGone(t trial) string {
	w := begin(t.T, nil)
	w.plant.PubSub.Sites.Set(cluster.Silent)
	pass(5 * time.Second) // the gateways have noticed
	before := w.stats()
	pass(3 * time.Second)
	after := w.stats()
	backlog := 0
	for _, g := range w.plant.Gateways {
		if h, err := health(t.Context(), g); err == nil {
			backlog += h.Outbox.Readings
		}
	}
	w.plant.PubSub.Sites.Set(cluster.Whole)
	// Every node hears its 500 and goes on: none waits.
	if after.Failed-before.Failed < 5 || backlog < 5 {
		t.Errorf("%d answers in 3 s, backlog %d: nodes were held up", after.Failed-before.Failed, backlog)
	}
	return fmt.Sprintf("backlog of %d delivered; %s", backlog, exact(w.end()))
}

// jumps is a clock that somebody sets.
type jumps struct{ offset atomic.Int64 }

func (j *jumps) now() time.Time          { return time.Now().Add(time.Duration(j.offset.Load())) }
func (j *jumps) by(offset time.Duration) { j.offset.Store(int64(offset)) }

func clockJump(t trial) string {
	var clock jumps
	s, err := system.Start(t.Context(), system.Options{DataDir: folder(t.T), Clock: clock.now, Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	var series bytes.Buffer
	_, _ = series.WriteString("node_id,timestamp,temperature,humidity\n")
	for i := range 500 {
		for node := range 4 {
			_, _ = fmt.Fprintf(&series, "jumpy-%d,%s,%d,40\n", node, time.Unix(int64(30*i), 0).UTC().Format(time.RFC3339), 20+(i*7)%45)
		}
	}
	// While it is sent the clock is set to and fro; what is older than ten
	// minutes on arrival would be backlog and raise no alert, so it never is.
	var setting sync.WaitGroup
	set := 0
	ctx, stop := context.WithCancel(t.Context())
	setting.Go(func() {
		for i := 0; pause(ctx, 30*time.Millisecond); i++ {
			if i == 0 && !sends(ctx, s) {
				i = -1 // sensors are still being made, with a token that a jump would end
				continue
			}
			set++
			clock.by([]time.Duration{0, 24 * time.Hour, 0, -5 * time.Minute, 300 * time.Millisecond}[i%5])
		}
	})
	account, err := ledger.Replay(t.Context(), s, &series, time.Now)
	stop()
	setting.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := account.Check(); err != nil {
		t.Errorf("%v\n%s", err, account)
	}
	if set < 3 {
		t.Errorf("the clock was set %d times only", set)
	}
	return fmt.Sprintf("set %d times; %d readings, %d alerts, exact", set, account.Sent.Accepted, account.Due)
}

// sends reports whether a reading has been stored.
func sends(ctx context.Context, s *system.System) (one bool) {
	err := s.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM sensor_data.readings)`).Scan(&one)
	return err == nil && one
}

func quotaErrors(t trial) string {
	table := bqtest.NewAppendServer(t.T)
	var refused atomic.Int64
	var exhausted atomic.Bool
	table.Failure = func(int, []reading.Reading) bqtest.Failure {
		if exhausted.Load() {
			refused.Add(1)
			return bqtest.Failure{Code: codes.ResourceExhausted}
		}
		return bqtest.Failure{}
	}
	w := begin(t.T, func(s *soak) {
		s.environ = map[string][]string{"ingest": {
			"READINGS=bigquery", "BIGQUERY_EMULATOR_HOST=127.0.0.1:1", "BIGQUERY_STORAGE_EMULATOR_HOST=" + table.Address(),
		}}
	})
	exhausted.Store(true)
	_, failed := w.during(6 * time.Second)
	exhausted.Store(false)
	if failed > 0 || refused.Load() == 0 {
		t.Errorf("%d posts failed; %d appends refused", failed, refused.Load())
	}
	_ = w.finish() // the ledger of PostgreSQL, where no readings are
	rows := table.Rows()
	distinct := map[reading.Identity]bool{}
	for _, r := range rows {
		distinct[r.Identity()] = true
	}
	if sum := w.book.Sum(); len(distinct) != sum.Sent {
		t.Errorf("%d readings stored, %d sent", len(distinct), sum.Sent)
	}
	return fmt.Sprintf("%d appends refused; %d readings stored, %d copies for readers to leave out", refused.Load(), len(distinct), len(rows)-len(distinct))
}

func twoGateways(t trial) string {
	// Nodes find another gateway when theirs no longer answers, as they would by
	// multicast DNS.
	var w *world
	var moved atomic.Int64
	resolve := func(site int) nodesim.Resolve {
		return func(ctx context.Context) (string, error) {
			for _, i := range []int{site, 1 - site} {
				g := w.plant.Gateways[i]
				if _, err := health(ctx, g); err == nil {
					if i != site {
						moved.Add(1)
					}
					return g.URL(), nil
				}
			}
			return "", fmt.Errorf("no gateway at site %d", site+1)
		}
	}
	w = prepared(t.T, func(s *soak) { s.resolve = resolve })
	w.send()
	before := w.stats()
	if err := w.plant.Gateways[1].End(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pass(6 * time.Second)
	after := w.stats()
	if moved.Load() == 0 || after.Accepted-before.Accepted < 20 {
		t.Errorf("%d nodes moved, %d readings taken in 6 s", moved.Load(), after.Accepted-before.Accepted)
	}
	if err := w.plant.Gateways[1].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum := w.end()
	return fmt.Sprintf("%d nodes moved, %d rows twice; %s", moved.Load(), sum.Duplicated, exact(sum))
}

func halfOpen(t trial) string {
	w := begin(t.T, nil)
	gateway := w.plant.Gateways[0]
	before := openFiles(t.T, gateway)
	const many = 300
	var connections []net.Conn
	for i := range many {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(gateway.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		// A third says nothing, a third stops in the header, a third in the body.
		_, _ = conn.Write([]byte([]string{"", "POST /api/v1/message HTTP/1.1\r\nHost: g", "POST /api/v1/message HTTP/1.1\r\nHost: g\r\nContent-Length: 90\r\n\r\n{"}[i%3]))
		connections = append(connections, conn)
	}
	held := openFiles(t.T, gateway)
	if held < before+many/2 {
		t.Errorf("%d open files with %d half-open connections, %d before", held, many, before)
	}
	start := w.stats()
	began := time.Now()
	for openFiles(t.T, gateway) > before+30 {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d files are still open, %d before", openFiles(t.T, gateway), before)
		}
		pass(100 * time.Millisecond)
	}
	took := time.Since(began)
	if failed := w.stats().Failed - start.Failed; failed > 0 {
		t.Errorf("%d posts of others failed meanwhile", failed)
	}
	closed := slices.IndexFunc(connections, func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := io.ReadAll(c)
		return err != nil && os.IsTimeout(err)
	})
	if closed >= 0 {
		t.Errorf("connection %d is still open", closed)
	}
	return fmt.Sprintf("%d dropped within %.0f s; %s", many, took.Seconds(), exact(w.end()))
}

func openFiles(t *testing.T, p *cluster.Process) int {
	t.Helper()
	g, err := read(p.PID(), time.Now())
	if err != nil {
		t.Skip(err) // no such gauge but on Linux
	}
	return int(g.open)
}
