// Package entrypoint registers detect with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"os"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// name is what FUNCTION_TARGET says, in production the function's entry_point.
const name = "detect"

type config struct {
	function.CommonConfig
	detect.Config
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
	alerts := detect.NewAlertPublisher(deps.PubSub, c.AlertTopic)
	deps.Clients.Push("alerts topic", closing.NoError(alerts.Stop))
	metadata := store.New(pool)
	var live detect.Models = detect.NoModels{}
	if c.ModelBucket != "" {
		bucket, err := modelstore.Open(ctx, c.ModelBucket)
		if err != nil {
			return nil, err
		}
		deps.Clients.Push("models", bucket.Close)
		loader := modelstore.NewLoader(bucket, 0, deps.Clock, deps.Log)
		deps.Clients.Push("loader of models", loader.Close)
		live = loader
	}
	finder := detect.NewFinder(metadata, deps.Clock, deps.Log)
	detector := detect.NewAnomalyDetector(live, finder, metadata, c.PredictionSample, deps.Log, deps.Counters)
	statuses := sensorcache.New(metadata, deps.Clock)
	from := origin.New(metadata, deps.Clock, origin.Options{RequireEnrolled: c.RequireEnrolled, Counters: deps.Counters})
	step := detect.New(from, statuses, alerts, detector, c.Fallback.Thresholds(), deps.Log, deps.Counters)
	return step.Handle, nil
}
