// Package postgres runs a PostgreSQL server for the local system and the tests. It
// uses the installed server or downloads one. The server stores its data in one
// folder, listens on 127.0.0.1 only, and on Linux ends with the process that started it.
//
// Production never uses it; there the database is Cloud SQL.
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/child"
	"coldaisle.dev/shared/pause"
)

// ErrNone says that there is no PostgreSQL and how to get one.
var ErrNone = errors.New("no PostgreSQL server found: install one (Debian: apt-get install postgresql; macOS: brew install postgresql) or set DATABASE_URL")

// Options say how a server runs.
type Options struct {
	// Dir is the server's own folder, made when missing; its data survives.
	Dir string
	// Port to listen on; 0 takes a free one.
	Port int
	// Ephemeral gives up durability for speed: for tests, never for data.
	Ephemeral bool
	// Download may fetch a server from the internet when none is installed.
	Download bool
	Log      *slog.Logger
}

const (
	superuser    = "coldaisle"
	database     = "coldaisle"
	startTimeout = 3 * time.Minute
	stopTimeout  = time.Minute
	portAttempts = 3
	// predecessorTimeout is how long a start waits for the previous server to end, with a
	// look in each interval.
	predecessorTimeout  = 30 * time.Second
	predecessorInterval = 50 * time.Millisecond
)

// Server is a running PostgreSQL.
type Server struct {
	url     string
	process *os.Process
	exited  <-chan struct{} // closed when the process has ended
}

// URL connects to the server's database as its superuser; it holds the password.
func (s *Server) URL() string { return s.url }

// Start runs a server until [Server.Stop] or the end of this process. ctx
// bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("postgres folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("postgres folder: %w", err)
	}
	c := cluster{dir: dir, data: filepath.Join(dir, "data"), port: o.Port, throwaway: o.Ephemeral}
	c.bin, err = findBinaries(ctx, filepath.Join(dir, downloadDir, "bin"), c.version())
	if errors.Is(err, ErrNone) && o.Download {
		c.bin, err = download(ctx, dir, o.Log)
	}
	if err != nil {
		return nil, err
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, predecessorTimeout)
	defer cancel()
	var used error // by the server before
	for attempt := 1; ; {
		server, err := c.start(ctx)
		if err != nil && inUse(err) {
			used = err
		}
		switch {
		case err == nil:
			return server, nil
		case used != nil && waiting.Err() != nil:
			return nil, used
		case inUse(err):
			_ = pause.For(waiting, predecessorInterval)
		case attempt < portAttempts && strings.Contains(err.Error(), "could not bind"):
			attempt++
		default:
			return nil, err
		}
	}
}

// inUse reports whether a previous server, or a process that it started, still uses the
// data. The processes of a killed server end a moment after it, each on its own.
func inUse(err error) bool {
	return strings.Contains(err.Error(), "is still in use") || // the shared memory
		strings.Contains(err.Error(), `lock file "postmaster.pid" already exists`)
}

// cluster is a data folder and the binaries that run it.
type cluster struct {
	dir, data, bin string
	port           int // 0: any
	throwaway      bool
	account        account // whom the server runs as
	password       string
}

// version is the major version that made the data; "" if there is none yet.
func (c *cluster) version() string {
	content, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// prepare creates the data folder and its password if they are missing, and gives them to
// the account that the server runs as.
func (c *cluster) prepare(ctx context.Context) error {
	var err error
	if c.account, err = serverAccount(c.dir); err != nil {
		return err
	}
	secret := filepath.Join(c.dir, "password")
	stored, err := os.ReadFile(secret) //nolint:gosec // a file of our own folder
	if err == nil {
		c.password = string(stored)
	}
	if c.version() != "" {
		if err != nil {
			return fmt.Errorf("postgres password: %w: the data is of no use without it: restore the file, or remove the folder", err)
		}
		return c.account.chown(c.dir)
	}
	c.password = rand.Text()
	if err := os.WriteFile(secret, []byte(c.password), 0o600); err != nil {
		return fmt.Errorf("postgres password: %w", err)
	}
	if err := c.account.chown(c.dir); err != nil {
		return err
	}
	// The rest of an interrupted initdb is useless.
	making := c.data + ".new"
	if err := os.RemoveAll(making); err != nil {
		return fmt.Errorf("postgres data: %w", err)
	}
	arguments := []string{
		"--pgdata", making, "--username", superuser, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C",
		"--lc-ctype", map[bool]string{true: "UTF-8", false: "C.UTF-8"}[runtime.GOOS == "darwin"], // by C alone lower() knows ASCII only
	}
	if c.throwaway {
		arguments = append(arguments, "--no-sync")
	}
	initdb := exec.CommandContext(ctx, filepath.Join(c.bin, "initdb"), arguments...) //nolint:gosec // our own binaries
	initdb.Dir = "/"                                                                 // ours may be closed to the account until it runs
	initdb.Env = environment()
	c.account.configure(initdb)
	runtime.LockOSThread() // see child.Launch
	defer runtime.UnlockOSThread()
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(string(output)))
	}
	if err := os.Rename(making, c.data); err != nil {
		return fmt.Errorf("postgres data: %w", err)
	}
	return nil
}

// environment is the server's environment, without the caller's PG variables.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"} //nolint:forbidigo // the child's, not a setting
}

func (c *cluster) start(ctx context.Context) (*Server, error) {
	port, err := c.port, error(nil)
	if port == 0 {
		if port, err = child.Port(ctx); err != nil {
			return nil, err
		}
	}
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if c.throwaway {
		settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"] = "off", "off", "off"
		settings["max_wal_size"] = "4GB"
	}
	arguments := []string{"-D", c.data}
	for name, value := range settings {
		arguments = append(arguments, "-c", name+"="+value)
	}
	output, err := os.OpenFile(filepath.Join(c.dir, "server.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("postgres log: %w", err)
	}
	defer func() { _ = output.Close() }()
	command := exec.Command(filepath.Join(c.bin, "postgres"), arguments...) //nolint:gosec,noctx // ends by Stop, not by a context
	command.Dir = "/"
	command.Env = environment()
	command.Stdout, command.Stderr = output, output
	c.account.configure(command)
	exited, err := child.Launch(command)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	server := &Server{process: command.Process, exited: exited}
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	if err := server.ready(ctx, address.String()); err != nil {
		server.Crash()
		said, _ := os.ReadFile(output.Name())
		return nil, fmt.Errorf("%w: %s", err, lastLines(string(said)))
	}
	address.Path = "/" + database
	server.url = address.String()
	return server, nil
}

// ready waits until the server accepts connections, and creates the database.
func (s *Server) ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := createDatabase(ctx, address)
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("postgres ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func createDatabase(ctx context.Context, address string) error {
	connection, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close(ctx) }()
	var exists bool
	err = connection.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = @name)`,
		pgx.StrictNamedArgs{"name": database}).Scan(&exists)
	if err == nil && !exists {
		_, err = connection.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{database}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// Exited is closed when the server has ended, for whatever reason.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Stop ends the server in order: it cuts sessions and keeps committed data.
func (s *Server) Stop() error {
	_ = s.process.Signal(syscall.SIGINT) // a fast shutdown; an error means that it has ended
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopTimeout):
		s.Crash()
		return fmt.Errorf("postgres did not stop within %s and was killed", stopTimeout)
	}
}

// Crash ends the server at once, without a checkpoint, as a loss of power does.
func (s *Server) Crash() {
	_ = s.process.Signal(syscall.SIGQUIT) // its children end with it
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		_ = s.process.Kill()
		<-s.exited
	}
}

// ownAttempts are what the server says to [Server.ready] while it recovers.
var ownAttempts = regexp.MustCompile(`FATAL:  the database system is |Consistent recovery state|invalid length of startup packet`)

// lastLines is the end of a log, on one line. The reason of an end stands up to seven lines
// before it.
func lastLines(log string) string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(log), "\n"), ownAttempts.MatchString)
	return strings.Join(lines[max(0, len(lines)-8):], " | ")
}
