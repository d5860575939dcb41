// Package entrypoint registers storealert with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"os"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/store"
)

// name is what FUNCTION_TARGET says, in production the function's entry_point.
const name = "storealert"

type config struct {
	function.CommonConfig
	storealert.Config
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
	step := storealert.New(store.New(pool), c.Fallback.Thresholds(), deps.Log, deps.Counters)
	return step.Handle, nil
}
