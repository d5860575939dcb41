package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/proxytest"
)

// database is a PostgreSQL that can crash and recover. Programs connect through its
// proxy, whose address does not change.
type database struct {
	Proxy *proxytest.Proxy
	// Pool connects to the server directly, past the proxy, as poolName.
	Pool *pgxpool.Pool

	options postgres.Options
	server  atomic.Pointer[postgres.Server] // another after a crash
}

// poolName is the application_name of the harness's own connections.
const poolName = "soak"

func (p *cluster) startDatabase(ctx context.Context, dir string) error {
	d := &database{options: postgres.Options{Dir: dir, Log: p.log}}
	server, err := postgres.Start(ctx, d.options)
	if err != nil {
		return err
	}
	d.server.Store(server)
	p.Database = d
	p.opened.Push("database", func() error { return d.server.Load().Stop() })
	if d.Proxy, err = proxytest.New(ctx, d.address().Host); err != nil {
		return err
	}
	p.opened.Push("database's proxy", func() error { d.Proxy.Close(); return nil })
	config, err := pgxpool.ParseConfig(d.server.Load().URL())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = poolName
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		port, err := strconv.ParseUint(d.address().Port(), 10, 16)
		c.Port = uint16(port)
		return err //nolint:wrapcheck // of an address of our own
	}
	if d.Pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	p.opened.Push("database's pool", func() error { d.Pool.Close(); return nil })
	return nil
}

func (d *database) address() *url.URL {
	address, err := url.Parse(d.server.Load().URL())
	if err != nil {
		return &url.URL{}
	}
	return address
}

// URL is the address of the proxy, with credentials.
func (d *database) URL() string {
	address := d.address()
	address.Host = d.Proxy.Address()
	return address.String()
}

// Crash stops the server at once, without a checkpoint, as a loss of power does.
func (d *database) Crash() error {
	pid, err := d.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("crash the database: %w", err)
	}
	return d.server.Load().Stop() // waits for its end
}

// Recover starts the server on the crashed server's data.
func (d *database) Recover(ctx context.Context) error {
	server, err := postgres.Start(ctx, d.options)
	if err != nil {
		return err
	}
	d.server.Store(server)
	d.Proxy.SetTarget(d.address().Host)
	return nil
}

// Exited reports whether the server has exited.
func (d *database) Exited() bool {
	pid, err := d.pid()
	return err != nil || syscall.Kill(pid, 0) != nil
}

func (d *database) pid() (int, error) {
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
