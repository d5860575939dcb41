// Package entrypoint registers detect with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"fmt"
	"os"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// name is what FUNCTION_TARGET says, in production the function's entry_point.
const name = "detect"

type settings struct {
	function.Common
	detect.Config
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
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), s.Project)
	if err != nil {
		closePool()
		return nil, nil, fmt.Errorf("open Pub/Sub: %w", err)
	}
	topic := detect.NewTopic(client, s.AlertTopic)
	shut := func() { topic.Stop(); _ = client.Close(); closePool() }
	metadata := store.New(pool)
	var live detect.Models = detect.NoModels{}
	if s.ModelBucket != "" {
		bucket, err := modelstore.Open(ctx, s.ModelBucket)
		if err != nil {
			shut()
			return nil, nil, err
		}
		live = modelstore.NewLoader(bucket, 0, tools.Clock, tools.Log)
		first := shut
		shut = func() { first(); _ = bucket.Close() }
	}
	learned := detect.NewPredictor(live, metadata, s.PredictionSample, tools.Log, tools.Tally)
	nodes := sensorcache.New(metadata, tools.Clock)
	step := detect.New(nodes, topic, learned, s.Defaults(), tools.Log, tools.Tally)
	return step.Handle, shut, nil
}
