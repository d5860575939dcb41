// Package entrypoint registers ingest with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// name is what FUNCTION_TARGET says, in production the function's entry_point.
const name = "ingest"

type config struct {
	function.CommonConfig
	ingest.Config
}

func init() {
	functions.HTTP(name, function.Handler(function.Process{
		Environ: os.Environ(), Log: os.Stdout, Errors: os.Stderr, Clock: time.Now, Exit: os.Exit,
	}, name, open))
}

func open(ctx context.Context, c config, deps function.Deps) (push.HandleFunc, error) {
	pool, closePool, err := cloudsql.Open(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	deps.Clients.Push("database pool", closing.NoError(closePool))
	table, closeTable, err := backend.Open(ctx, c.Project, c.Backend, pool, deps.Clock, deps.Log)
	if err != nil {
		return nil, fmt.Errorf("open readings: %w", err)
	}
	deps.Clients.Push("readings", closeTable)
	metadata := store.New(pool)
	from := origin.New(metadata, deps.Clock, origin.Options{RequireEnrolled: c.RequireEnrolled, Counters: deps.Counters})
	step := ingest.New(from, ingest.NewStates(metadata, deps.Clock), table, sensorcache.New(metadata, deps.Clock), deps.Log, deps.Counters)
	return step.Handle, nil
}
