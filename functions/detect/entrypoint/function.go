// Package entrypoint registers detect with the Functions Framework, as package function says.
package entrypoint

import (
	"context"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// name is the value of FUNCTION_TARGET, in production the function's entry_point.
const name = "detect"

type config struct {
	function.CommonConfig
	detect.Config
}

func init() {
	functions.HTTP(name, function.Handler(function.ThisProcess(), name, open))
}

func open(ctx context.Context, c config, deps function.Deps) (push.HandleFunc, error) {
	alerts := detect.NewAlertPublisher(deps.PubSub, c.AlertTopic)
	deps.Clients.Push("alerts topic", closing.NoError(alerts.Stop))
	metadata := store.New(deps.Database)
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
	detector := detect.NewAnomalyDetector(live, learning.New(metadata), detect.Questions, deps.Clock, deps.Log)
	statuses := sensorcache.New(pipeline.New(metadata), pipeline.BatchWait(), deps.Clock)
	from := origin.New(accounts.New(metadata), deps.Clock, origin.Options{RequireEnrolled: c.RequireEnrolled, Counters: deps.Counters})
	step := detect.New(from, statuses, alerts, incidents.New(metadata), detector, c.Defaults(), deps.Log, deps.Counters)
	return step.Handle, nil
}
