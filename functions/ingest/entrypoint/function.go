// Package entrypoint registers ingest with the Functions Framework, as package function says.
package entrypoint

import (
	"context"
	"fmt"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/pipeline"
)

// name is the value of FUNCTION_TARGET, in production the function's entry_point.
const name = "ingest"

type config struct {
	function.CommonConfig
	ingest.Config
}

func init() {
	functions.HTTP(name, function.Handler(function.ThisProcess(), name, open))
}

func open(ctx context.Context, c config, deps function.Deps) (push.HandleFunc, error) {
	metadata := store.New(deps.Database)
	table, closeTable, err := backend.Open(ctx, c.Project, c.Backend, metadata, deps.Clock, deps.Log)
	if err != nil {
		return nil, fmt.Errorf("open readings: %w", err)
	}
	deps.Clients.Push("readings", closeTable)
	states := pipeline.New(metadata)
	from := origin.New(accounts.New(metadata), deps.Clock, origin.Options{RequireEnrolled: c.RequireEnrolled, Counters: deps.Counters})
	step := ingest.New(from, states, table, pipeline.BatchWait(), deps.Clock, deps.Log, deps.Counters)
	return step.Handle, nil
}
