// Package pgtest gives each test a database of its own, with the schema, on a real
// PostgreSQL server. The database is cloned from a template, which takes about a
// tenth of a second.
//
// The first test that needs the server starts it. It is stopped after the last test
// by this line, which every package that uses pgtest has:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
// With DATABASE_URL set, databases are made on that server and dropped again.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// shared is the one server of a test binary.
//
//nolint:gochecknoglobals // only the process is common to all tests of a package
var shared struct {
	sync.Mutex

	started  bool
	err      error
	server   *postgres.Server // nil with DATABASE_URL
	dir      string
	admin    string // URL of the server's maintenance database
	template string
}

// Main runs a package's tests and then stops their server.
func Main(m *testing.M) int {
	code := m.Run()
	if err := stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// SkipUnlessAvailable handles the error of starting a server: without a PostgreSQL it skips
// the test by [tooltest.Missing], and any other error fails it.
func SkipUnlessAvailable(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, postgres.ErrNone) {
		tooltest.Missing(tb, "PostgreSQL")
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// URL returns the connection string of a new, migrated database, which is dropped when
// the test ends. Without PostgreSQL the test ends by [SkipUnlessAvailable].
func URL(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.started {
		shared.started = true
		shared.err = start(context.WithoutCancel(tb.Context()))
	}
	SkipUnlessAvailable(tb, shared.err)
	name := "test_" + strings.ToLower(rand.Text())
	must.Do(tb, execute(tb.Context(), shared.admin, "CREATE DATABASE "+name+" TEMPLATE "+shared.template))
	tb.Cleanup(func() {
		if err := execute(context.WithoutCancel(tb.Context()), shared.admin, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Error(err)
		}
	})
	return withDatabase(shared.admin, name)
}

// New returns a pool of connections to a new database, as [URL] makes it.
func New(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool := must.Get(pgxpool.New(tb.Context(), URL(tb)))(tb)
	tb.Cleanup(pool.Close)
	return pool
}

// start starts a server, or uses that of DATABASE_URL, and creates the template.
func start(ctx context.Context) error {
	shared.admin = os.Getenv("DATABASE_URL") //nolint:forbidigo // a test binary has no entrypoint to read it
	if shared.admin == "" {
		dir, err := os.MkdirTemp(memory(), fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
		if err != nil {
			return fmt.Errorf("test server's folder: %w", err)
		}
		shared.dir = dir
		shared.server, err = postgres.Start(ctx, postgres.Options{Dir: dir, Ephemeral: true, Log: logging.Discard()})
		if err != nil {
			return err
		}
		shared.admin = withDatabase(shared.server.URL(), "postgres")
	}
	shared.template = "template_" + strings.ToLower(rand.Text())
	if err := execute(ctx, shared.admin, "CREATE DATABASE "+shared.template); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, withDatabase(shared.admin, shared.template))
	if err != nil {
		return fmt.Errorf("template: %w", err)
	}
	defer pool.Close()
	return store.Migrate(ctx, pool)
}

// folderPrefix is the prefix of a server's folder, before the process id.
const folderPrefix = "coldaisle-pgtest-"

// memory returns the folder of Linux's in-memory file system, where creating and dropping a
// database takes half the time, or the default folder if it has no room for a server.
func memory() string {
	const folder, enough = "/dev/shm", 2 << 30
	sweep(folder)
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil || disk.Bavail*uint64(disk.Bsize) < enough { //nolint:gosec,unconvert // by platform
		return ""
	}
	return folder
}

// sweep removes the folders of killed tests, which would stay in memory.
func sweep(folder string) {
	left, _ := filepath.Glob(filepath.Join(folder, folderPrefix+"*"))
	for _, path := range left {
		var process int
		if _, err := fmt.Sscanf(filepath.Base(path), folderPrefix+"%d-", &process); err == nil && errors.Is(unix.Kill(process, 0), unix.ESRCH) {
			_ = os.RemoveAll(path)
		}
	}
}

func stop() error {
	shared.Lock()
	defer shared.Unlock()
	switch {
	case shared.server != nil:
		return errors.Join(shared.server.Stop(), os.RemoveAll(shared.dir))
	case shared.dir == "" && shared.template != "":
		return execute(context.Background(), shared.admin, "DROP DATABASE IF EXISTS "+shared.template+" WITH (FORCE)")
	default:
		return errors.Join(os.RemoveAll(shared.dir)) // of a server that did not start
	}
}

func execute(ctx context.Context, address, sql string) error {
	connection, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("test server: %w", err)
	}
	defer func() { _ = connection.Close(ctx) }()
	if _, err := connection.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func withDatabase(address, name string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return address
	}
	parsed.Path = "/" + name
	return parsed.String()
}

// Stores are all stores of a database, for tests that need several.
type Stores struct {
	*store.DB
	accountsStore
	incidentsStore
	learningStore
	pipelineStore
}

type (
	accountsStore  = accounts.Store
	incidentsStore = incidents.Store
	learningStore  = learning.Store
	pipelineStore  = pipeline.Store
)

// NewStores returns the stores of a database.
func NewStores(pool *pgxpool.Pool) Stores {
	db := store.New(pool)
	return Stores{db, accounts.New(db), incidents.New(db), learning.New(db), pipeline.New(db)}
}

// Owner makes a customer, and a room with sensors.
func (s Stores) Owner(tb testing.TB, name string, sensors ...string) (customer, room int64) {
	tb.Helper()
	c := must.Get(s.CreateCustomer(tb.Context(), accounts.NewCustomer{Email: name + "@example.com", Username: name, PasswordHash: "x"}))(tb)
	r := must.Get(s.CreateRoom(tb.Context(), c.ID, "room"))(tb)
	s.AddSensors(tb, c.ID, r.ID, sensors...)
	return c.ID, r.ID
}

// AddSensors makes sensors in a room.
func (s Stores) AddSensors(tb testing.TB, customer, room int64, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		must.Get(s.CreateSensor(tb.Context(), customer, accounts.NewSensor{ID: id, Name: id, Type: "T", RoomID: room}))(tb)
	}
}
