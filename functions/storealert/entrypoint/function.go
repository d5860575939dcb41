// Package entrypoint registers storealert with the Functions Framework, as package function says.
package entrypoint

import (
	"context"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// name is the value of FUNCTION_TARGET, in production the function's entry_point.
const name = "storealert"

func init() {
	functions.HTTP(name, function.Handler(function.ThisProcess(), name, open))
}

func open(_ context.Context, _ function.CommonConfig, deps function.Deps) (push.HandleFunc, error) {
	step := storealert.New(incidents.New(store.New(deps.Database)), deps.Clock, deps.Log, deps.Counters)
	return step.Handle, nil
}
