package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/postgres"
)

// start runs a server in a folder, or skips where none is installed.
func start(t *testing.T, dir string) *postgres.Server {
	t.Helper()
	return run(t, options(dir))
}

func run(t *testing.T, o postgres.Options) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context(), o)
	pgtest.SkipUnlessAvailable(t, err)
	t.Cleanup(func() { must.Do(t, server.Stop()) })
	return server
}

// options are those of a server that is stopped in order.
func options(dir string) postgres.Options {
	return postgres.Options{Dir: dir, Ephemeral: true, Log: logging.Discard()}
}

// connect opens a session that ends with the test, whether its server still runs or not.
func connect(t *testing.T, server *postgres.Server) *pgx.Conn {
	t.Helper()
	connection := must.Get(pgx.Connect(t.Context(), server.URL()))(t)
	t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
	return connection
}

// keep makes a table of three rows.
func keep(t *testing.T, server *postgres.Server) {
	t.Helper()
	must.Get(connect(t, server).Exec(t.Context(), `CREATE TABLE kept AS SELECT generate_series(1, 3)`))(t)
}

func count(t *testing.T, server *postgres.Server) (rows int) {
	t.Helper()
	must.Do(t, connect(t, server).QueryRow(t.Context(), `SELECT count(*) FROM kept`).Scan(&rows))
	return rows
}

// postmaster is the process of the server whose folder it is.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join(dir, "data", "postmaster.pid")))(t)
	first, _, _ := strings.Cut(string(content), "\n")
	return must.Get(strconv.Atoi(first))(t)
}

// gone waits for the end of a process.
func gone(t *testing.T, pid int) {
	t.Helper()
	must.Eventually(t, "the end of a process", func() bool { return !alive(pid) })
}

// alive counts a process that has ended and that nobody has waited for as dead.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return !os.IsNotExist(err) || !procfs()
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func procfs() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// TestDataSurvivesStopAndStart also loses the password: that is reported.
func TestDataSurvivesStopAndStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "when missing")
	first := start(t, dir)
	keep(t, first)
	pid := postmaster(t, dir)
	must.Do(t, first.Stop())
	must.Hold(t, !alive(pid), "the server runs on after Stop")
	file, aside := filepath.Join(dir, "password"), filepath.Join(dir, "aside")
	must.Do(t, os.Rename(file, aside))
	must.Contain(t, "without it", fmt.Sprint(must.Err(postgres.Start(t.Context(), options(dir)))), "password")
	must.Do(t, os.Rename(aside, file))
	must.Equal(t, "rows", 3, count(t, start(t, dir)))
}

// TestServerStartsAgainWhileProcessesOfTheKilledOneRun kills a server whose session is
// computing: such a session notices only when it has finished.
func TestServerStartsAgainWhileProcessesOfTheKilledOneRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := postgres.Options{Dir: dir, Log: logging.Discard()}
	killed := run(t, durable)
	keep(t, killed)
	busy, observer := connect(t, killed), connect(t, killed)
	var backend int
	must.Do(t, busy.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&backend))
	computed := make(chan error, 1)
	go func() {
		var rows int
		computed <- busy.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT generate_series(1, 20000000)) AS g`).Scan(&rows)
	}()
	for active := false; !active; {
		const sql = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = @pid AND state = 'active' AND query LIKE '%generate_series%')`
		must.Do(t, observer.QueryRow(t.Context(), sql, pgx.StrictNamedArgs{"pid": backend}).Scan(&active))
	}
	pid := postmaster(t, dir)
	must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	gone(t, pid)
	if !alive(backend) {
		t.Fatal("the session has ended already")
	}
	must.Equal(t, "rows", 3, count(t, run(t, durable)))
	t.Logf("the session ended: %v", <-computed) // either way
}

func TestTwoServersRunAtOnce(t *testing.T) {
	t.Parallel()
	first, second := start(t, t.TempDir()), start(t, t.TempDir())
	keep(t, first)
	keep(t, second) // which has no table of this name
}

func TestSecondServerOnOneFolderIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, dir)
	keep(t, first)
	// It waits for the first to end: no longer than it may.
	var second *postgres.Server
	var err error
	for patience := 2 * time.Second; patience < 5*time.Minute; patience *= 4 { // of which a busy machine may need all to start it
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		second, err = postgres.Start(ctx, options(dir))
		cancel()
		if err == nil || strings.Contains(err.Error(), "postmaster.pid") {
			break
		}
	}
	if err == nil {
		_ = second.Stop()
		t.Fatal("two servers on one folder")
	}
	must.Contain(t, "the reason", err.Error(), "postmaster.pid")
	must.Equal(t, "the first has rows", 3, count(t, first))
}

func TestDataOfAnotherMajorVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, start(t, dir).Stop())
	version := filepath.Join(dir, "data", "PG_VERSION")
	must.Do(t, os.WriteFile(version, []byte("9.6\n"), 0o600))
	downloading := options(dir)
	downloading.Download = true // as the local system does; but the newest server is of no use to this data
	for _, o := range []postgres.Options{options(dir), downloading} {
		_, err := postgres.Start(t.Context(), o)
		must.Hold(t, err != nil && !errors.Is(err, postgres.ErrNone) && strings.Contains(err.Error(), "PostgreSQL 9.6, which is not installed"),
			"with download %t: error %v", o.Download, err)
	}
	must.Get(os.Stat(filepath.Join(dir, "data", "base")))(t)
}

// TestFullDiskIsTheReason is the log of a server that began on a full disk after a crash.
func TestFullDiskIsTheReason(t *testing.T) {
	t.Parallel()
	reason := postgres.LastLines(`LOG:  redo starts at 0/1501120
FATAL:  the database system is not yet accepting connections
DETAIL:  Consistent recovery state has not been yet reached.
FATAL:  could not extend file "base/16384/16782": No space left on device
HINT:  Check free disk space.
CONTEXT:  WAL redo at 0/19CC868 for XLOG/FPI: ; blkref #0: rel 1663/16384/16782, blk 0 FPW
FATAL:  the database system is not yet accepting connections
DETAIL:  Consistent recovery state has not been yet reached.
LOG:  startup process (PID 519) exited with exit code 1
LOG:  terminating any other active server processes
LOG:  invalid length of startup packet
LOG:  shutting down due to startup process failure
LOG:  database system is shut down
`)
	must.Hold(t, strings.Contains(reason, "No space left on device") && !strings.Contains(reason, "accepting connections"),
		"%v", reason)
}

func TestInterruptedCreationIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	half := filepath.Join(dir, "data.new", "base")
	must.Do(t, os.MkdirAll(half, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "password"), nil, 0o600))
	keep(t, start(t, dir))
}

func TestServerListensOnTheMachineItselfAndAsksForAPassword(t *testing.T) {
	t.Parallel()
	server := start(t, t.TempDir())
	config := must.Get(pgx.ParseConfig(server.URL()))(t)
	must.Equal(t, "host", "127.0.0.1", config.Host)
	must.Hold(t, config.Password != "", "no password")
	config.Password = "guess"
	must.Hold(t, must.Err(pgx.ConnectConfig(t.Context(), config)) != nil, "took another password")
}
