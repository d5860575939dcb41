// Package entrypoint registers storealert with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// name is what FUNCTION_TARGET says, in production the function's entry_point.
const name = "storealert"

func init() {
	functions.HTTP(name, function.Handler(function.ThisProcess(), name, open))
}

func open(_ context.Context, _ function.CommonConfig, deps function.Deps) (push.HandleFunc, error) {
	step := storealert.New(incidents.New(store.New(deps.Database)), time.Now, deps.Log, deps.Counters)
	return step.Handle, nil
}
