package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/run/api"
	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/run/api/gateways"
	"coldaisle.dev/run/api/records"
	"coldaisle.dev/run/api/training"
	"coldaisle.dev/run/dashboard"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/recordstore"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tracing"
)

// traceFlushTimeout bounds the export of the last spans, after the requests are done.
const traceFlushTimeout = 2 * time.Second

// serve opens the service's dependencies, runs it until ctx ends, and closes them in
// reverse order.
func serve(ctx context.Context, s Config, log *slog.Logger, clock func() time.Time) (err error) {
	var opened closing.Stack
	defer func() { err = errors.Join(err, opened.Close()) }()

	stopTraces, err := tracing.Start(ctx, s.Tracing, "api")
	if err != nil {
		return err
	}
	opened.Push("traces", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlushTimeout)
		defer cancel()
		return stopTraces(ctx)
	})
	pool, closePool, err := cloudsql.Open(ctx, s.Database)
	if err != nil {
		return err
	}
	opened.Push("database pool", closing.NoError(closePool))
	client, err := pubsub.NewClient(ctx, s.ProjectID)
	if err != nil {
		return fmt.Errorf("pub/sub client: %w", err)
	}
	opened.Push("Pub/Sub client", client.Close)
	topic := training.NewPublisher(client, s.RetrainingTopic)
	opened.Push("retraining topic", closing.NoError(topic.Stop))
	drills := alerting.NewDrillPublisher(client, s.DataTopic)
	opened.Push("data topic", closing.NoError(drills.Stop))
	db := store.New(pool)
	table, closeTable, err := backend.Open(ctx, s.ProjectID, s.Backend, db, clock, log)
	if err != nil {
		return err
	}
	opened.Push("readings", closeTable)

	deps := api.Config{
		DB: db, Readings: table, Publisher: topic, Drills: drills, SecretKey: s.SecretKey,
		ProjectID: s.ProjectID, DataTopic: s.DataTopic, MaxUnreported: s.MaxUnreported,
		Origins: s.AllowedOrigins, TrustedProxies: s.TrustedProxies, Clock: clock, Log: log,
	}
	if s.PublishingAccount != "" {
		deps.GatewayTokens = gateways.NewPublishingTokens(s.PublishingAccount, clock)
	}
	if err := openBuckets(ctx, s, &deps, &opened); err != nil {
		return err
	}
	handler, err := api.New(deps)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(s.Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return handler.Run(ctx) })
	group.Go(func() error { return api.Serve(ctx, listener, dashboard.WithPage(handler), log) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// openBuckets opens the buckets of models and of records that the environment names.
func openBuckets(ctx context.Context, s Config, deps *api.Config, opened *closing.Stack) (err error) {
	if s.ModelBucket != "" {
		bucket, err := modelstore.Open(ctx, s.ModelBucket)
		if err != nil {
			return err
		}
		opened.Push("models", bucket.Close)
		loader := modelstore.NewLoader(bucket, 0, deps.Clock, deps.Log)
		opened.Push("loader of models", loader.Close)
		deps.Models = loader
	}
	if s.RecordKeys != "" && s.RecordBucket != "" {
		if deps.RecordKeys, err = records.ParseKeys(s.RecordKeys); err != nil {
			return err
		}
		if deps.Records, err = recordstore.Open(ctx, s.RecordBucket); err != nil {
			return err
		}
		opened.Push("records", deps.Records.Close)
	}
	return nil
}

// migrate migrates the schema and gives the components their rights in it, by
// [store.Grant] or [store.Extend].
func migrate(ctx context.Context, environment []string, grant func(context.Context, *pgxpool.Pool, map[string]string) error) error {
	s, err := config.Load[MigrationConfig](environment)
	if err != nil {
		return err
	}
	pool, release, err := cloudsql.Open(ctx, s.Database)
	if err != nil {
		return err
	}
	defer release()
	if err := store.Migrate(ctx, pool); err != nil {
		return err
	}
	return grant(ctx, pool, s.Users)
}
