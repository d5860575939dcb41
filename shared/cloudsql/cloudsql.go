// Package cloudsql opens the pool of connections to the metadata database that
// the functions and the API use: by DATABASE_URL if it is set, else to a Cloud SQL
// instance, as the service account that the program runs as.
//
// Opening makes no connection. An instance that only answers health checks never
// uses the database, and a function starts while the database is down.
package cloudsql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"cloud.google.com/go/cloudsqlconn"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/tracing"
)

// Config says where the database is. Embed it in a program's config.
type Config struct {
	// DatabaseURL is a connection string of PostgreSQL; it overrides the others.
	DatabaseURL string `env:"DATABASE_URL"`
	// Instance is a Cloud SQL instance, project:region:name.
	Instance string `env:"INSTANCE_CONNECTION_NAME"`
	// User is the IAM database user: a service account's address without
	// .gserviceaccount.com.
	User string `env:"DB_USER"`
	// Name is the database's name.
	Name string `env:"DB_NAME"`
	// PrivateIP connects over the instance's private address.
	PrivateIP bool `env:"DB_PRIVATE_IP" envDefault:"false"`
	// MaxConns bounds the pool of one instance of the program: all instances
	// together must stay below what the database allows.
	MaxConns int32 `env:"DB_MAX_CONNS" envDefault:"4"`
}

// Validate implements [config.Validator].
func (c Config) Validate() error {
	if c.DatabaseURL == "" && (c.Instance == "" || c.User == "" || c.Name == "") {
		return errors.New("DATABASE_URL, or INSTANCE_CONNECTION_NAME, DB_USER and DB_NAME, are required")
	}
	if c.MaxConns < 1 {
		return errors.New("DB_MAX_CONNS must be at least 1")
	}
	return nil
}

const (
	connectTimeout = 10 * time.Second
	// A function's instance may be idle for long between requests. The health check
	// finds connections that the database or a NAT gateway has closed.
	healthCheck = 30 * time.Second
	maxConnIdle = 5 * time.Minute
	// After a failover nothing ends the connections to the machine that is gone: a statement on one
	// would wait until the time of its whole request is over.
	pingTimeout = 3 * time.Second
)

// Open returns a pool and the function that closes it. ctx bounds only the opening.
func Open(ctx context.Context, config Config) (*pgxpool.Pool, func(), error) {
	if err := config.Validate(); err != nil {
		return nil, nil, err
	}
	poolConfig, err := pgxpool.ParseConfig(config.DatabaseURL)
	if err != nil {
		// The library's error may quote the connection string, password and all.
		return nil, nil, errors.New("DATABASE_URL is not a valid connection string")
	}
	poolConfig.MaxConns = config.MaxConns
	poolConfig.HealthCheckPeriod = healthCheck
	poolConfig.MaxConnIdleTime = maxConnIdle
	poolConfig.PingTimeout = pingTimeout
	poolConfig.ConnConfig.ConnectTimeout = connectTimeout
	poolConfig.ConnConfig.Tracer = tracing.QueryTracer{}
	// Who has waited for a lock must see what was committed meanwhile, whatever the server's default.
	poolConfig.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	// An instance that is frozen, or lost with its machine, keeps its nodes' locks no longer than a message may take.
	poolConfig.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "1min"
	// A session that began on a replica, or while the database took no changes, would refuse them for an hour after that is over.
	keeps := poolConfig.ConnConfig.OnPgError
	poolConfig.ConnConfig.OnPgError = func(session *pgconn.PgConn, err *pgconn.PgError) bool {
		const readOnly = "25006"
		return err.Code != readOnly && keeps(session, err)
	}
	closeDialer := func() {}
	if config.DatabaseURL == "" {
		dialer, err := dialer(ctx, config)
		if err != nil {
			return nil, nil, err
		}
		closeDialer = func() { _ = dialer.Close() }
		poolConfig.ConnConfig.Host = "cloudsql" // a name for error texts; the dialer knows the address
		poolConfig.ConnConfig.User = config.User
		poolConfig.ConnConfig.Database = config.Name
		poolConfig.ConnConfig.TLSConfig = nil // the dialer's connection is already encrypted
		poolConfig.ConnConfig.Fallbacks = nil
		poolConfig.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
		poolConfig.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.Dial(ctx, config.Instance)
		}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), poolConfig)
	if err != nil {
		closeDialer()
		return nil, nil, fmt.Errorf("open database pool: %w", err)
	}
	return pool, func() { pool.Close(); closeDialer() }, nil
}

// dialer logs in by IAM and exports no metrics of its own. It renews its certificate when a
// connection needs it and not in the background, where a throttled instance has no processor
// time.
func dialer(ctx context.Context, config Config) (*cloudsqlconn.Dialer, error) {
	options := []cloudsqlconn.Option{
		cloudsqlconn.WithIAMAuthN(),
		cloudsqlconn.WithLazyRefresh(),
		cloudsqlconn.WithBuiltInMetrics(false),
	}
	if config.PrivateIP {
		options = append(options, cloudsqlconn.WithDefaultDialOptions(cloudsqlconn.WithPrivateIP()))
	}
	d, err := cloudsqlconn.NewDialer(context.WithoutCancel(ctx), options...)
	if err != nil {
		return nil, fmt.Errorf("cloud SQL dialer: %w", err)
	}
	return d, nil
}
