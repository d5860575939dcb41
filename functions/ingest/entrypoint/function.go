// Package entrypoint registers ingest with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"fmt"
	"os"
	"time"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/registry"
	"coldaisle.dev/shared/store"
)

type settings struct {
	function.Common
	ingest.Config
}

func init() {
	function.Register(function.Program{
		Environ: os.Environ(), Log: os.Stdout, Errors: os.Stderr, Clock: time.Now, Exit: os.Exit,
	}, "ingest", open)
}

func open(ctx context.Context, s settings, tools function.Tools) (push.Step, func(), error) {
	pool, closePool, err := cloudsql.Open(ctx, s.Database)
	if err != nil {
		return nil, nil, err
	}
	nodes := registry.New(store.New(pool), tools.Clock)
	if s.Readings == ingest.PostgreSQL {
		step := ingest.New(pgreadings.New(pool, tools.Clock), nodes, tools.Log, tools.Tally)
		return step.Handle, closePool, nil
	}
	readings, err := bqreadings.Open(ctx, s.Project, s.BigQuery, tools.Clock, tools.Log)
	if err != nil {
		closePool()
		return nil, nil, fmt.Errorf("open readings: %w", err)
	}
	step := ingest.New(readings, nodes, tools.Log, tools.Tally)
	return step.Handle, func() { _ = readings.Close(); closePool() }, nil
}
