package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/proxytest"
)

// Database is a PostgreSQL that can crash and recover. Programs connect through its
// proxy, whose address does not change.
type Database struct {
	Proxy *proxytest.Proxy

	options postgres.Options
	server  *postgres.Server
}

func startDatabase(ctx context.Context, dir string, log *slog.Logger) (*Database, error) {
	d := &Database{options: postgres.Options{Dir: dir, Log: log}}
	var err error
	if d.server, err = postgres.Start(ctx, d.options); err != nil {
		return nil, err
	}
	d.Proxy, err = proxytest.New(ctx, d.host())
	return d, err
}

// URL is the address of the proxy, with credentials.
func (d *Database) URL() string {
	address, err := url.Parse(d.server.URL())
	if err != nil {
		return ""
	}
	address.Host = d.Proxy.Address()
	return address.String()
}

func (d *Database) host() string {
	address, err := url.Parse(d.server.URL())
	if err != nil {
		return ""
	}
	return address.Host
}

// Connect connects to the server directly, past the proxy.
func (d *Database) Connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, d.server.URL())
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// Crash stops the server at once, without a checkpoint, as a loss of power does.
func (d *Database) Crash() error {
	pid, err := d.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("crash the database: %w", err)
	}
	return d.server.Stop() // waits for its end
}

// Recover starts the server on the crashed server's data.
func (d *Database) Recover(ctx context.Context) error {
	server, err := postgres.Start(ctx, d.options)
	if err != nil {
		return err
	}
	d.server = server
	d.Proxy.SetTarget(d.host())
	return nil
}

// Exited reports whether the server has exited.
func (d *Database) Exited() bool {
	pid, err := d.pid()
	return err != nil || syscall.Kill(pid, 0) != nil
}

func (d *Database) pid() (int, error) {
	content, err := os.ReadFile(filepath.Join(d.options.Dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("process of the database: %w", err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0, fmt.Errorf("process of the database: %w", err)
	}
	return pid, nil
}

func (d *Database) close() error {
	d.Proxy.Close()
	return d.server.Stop()
}
