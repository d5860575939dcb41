// Package entrypoint registers train with the Functions Framework, as package function says.
package entrypoint

import (
	"context"
	"fmt"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/train"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

// name is the value of FUNCTION_TARGET, in production the function's entry_point.
const name = "train"

type config struct {
	function.CommonConfig
	train.Config
}

func init() {
	functions.HTTP(name, function.Handler(function.ThisProcess(), name, open))
}

func open(ctx context.Context, c config, deps function.Deps) (push.HandleFunc, error) {
	bucket, err := modelstore.Open(ctx, c.ModelBucket)
	if err != nil {
		return nil, err
	}
	deps.Clients.Push("models", bucket.Close)
	metadata := store.New(deps.Database)
	table, closeTable, err := backend.Open(ctx, c.Project, c.Backend, metadata, deps.Clock, deps.Log)
	if err != nil {
		return nil, fmt.Errorf("open readings: %w", err)
	}
	deps.Clients.Push("readings", closeTable)
	step := train.New(learning.New(metadata), table, bucket, c.Rows, deps.Clock, deps.Log)
	return step.Handle, nil
}
