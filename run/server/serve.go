package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/run/api"
	"coldaisle.dev/run/dashboard"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tracing"
)

// closeTime is how long the last traces may take to leave, after the requests
// are done.
const closeTime = 2 * time.Second

// serve builds the service's parts, runs it until ctx ends, and closes them in
// reverse order.
func serve(ctx context.Context, s settings, log *slog.Logger, clock func() time.Time) (err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close()) }()

	stopTraces, err := tracing.Start(ctx, s.Config, "api")
	if err != nil {
		return err
	}
	open.add(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		return stopTraces(ctx)
	})
	pool, closePool, err := cloudsql.Open(ctx, s.Database.Config)
	if err != nil {
		return err
	}
	open.add(func() error { closePool(); return nil })
	client, err := pubsub.NewClient(ctx, s.ProjectID)
	if err != nil {
		return fmt.Errorf("pub/sub client: %w", err)
	}
	open.add(client.Close)
	topic := api.NewRetrainingPublisher(client, s.RetrainingTopic)
	open.add(func() error { topic.Stop(); return nil })
	table, closeTable, err := backend.Open(ctx, s.ProjectID, s.Table.Config, pool, clock, log)
	if err != nil {
		return err
	}
	open.add(closeTable)

	deps := api.Config{
		Store: store.New(pool), Readings: table, Publisher: topic, SecretKey: s.SecretKey,
		Origins: s.AllowedOrigins, TrustedProxies: s.TrustedProxies, Clock: clock, Log: log,
	}
	if s.ModelBucket != "" {
		bucket, err := modelstore.Open(ctx, s.ModelBucket)
		if err != nil {
			return err
		}
		open.add(bucket.Close)
		deps.Forecaster = api.NewModelForecaster(modelstore.NewLoader(bucket, 0, clock, log), table)
	}
	backend, err := api.New(deps)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(s.Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String())
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return backend.Run(ctx) })
	work.Go(func() error { return api.Serve(ctx, listener, dashboard.WithPage(backend), log) })
	if err := work.Wait(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// migrate brings the schema up to date and gives the system's parts their rights
// in it, by [store.Grant] or [store.Extend].
func migrate(ctx context.Context, environment []string, grant func(context.Context, *pgxpool.Pool, map[string]string) error) error {
	s, err := config.Load[migrationSettings](environment)
	if err != nil {
		return err
	}
	pool, release, err := cloudsql.Open(ctx, s.Config)
	if err != nil {
		return err
	}
	defer release()
	if err := store.Migrate(ctx, pool); err != nil {
		return err
	}
	return grant(ctx, pool, s.Users)
}

// closers close what was opened, the last first.
type closers []func() error

func (c *closers) add(closer func() error) { *c = append(*c, closer) }

func (c *closers) close() error {
	var faults []error
	for _, closer := range slices.Backward(*c) {
		faults = append(faults, closer())
	}
	return errors.Join(faults...)
}
