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
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// name is what FUNCTION_TARGET says, in production the function's entry_point.
const name = "ingest"

type settings struct {
	function.Common
	ingest.Config
}

func init() {
	functions.HTTP(name, function.Handler(function.Program{
		Environ: os.Environ(), Log: os.Stdout, Errors: os.Stderr, Clock: time.Now, Exit: os.Exit,
	}, name, open))
}

func open(ctx context.Context, s settings, tools function.Tools) (push.Step, func(), error) {
	pool, closePool, err := cloudsql.Open(ctx, s.Database)
	if err != nil {
		return nil, nil, err
	}
	table, closeTable, err := backend.Open(ctx, s.Project, s.Table, pool, tools.Clock, tools.Log)
	if err != nil {
		closePool()
		return nil, nil, fmt.Errorf("open readings: %w", err)
	}
	step := ingest.New(table, sensorcache.New(store.New(pool), tools.Clock), tools.Log, tools.Tally)
	return step.Handle, func() { _ = closeTable(); closePool() }, nil
}
