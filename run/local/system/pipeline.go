package system

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// What the functions' settings are without an environment.
const (
	predictionSample = 200
	trainingRows     = 5000
)

// startPipeline serves the functions' steps over HTTP and pushes the messages
// of their subscriptions at them.
func (s *System) startPipeline(ctx context.Context, table timeSeries) error {
	metadata := store.New(s.Pool)
	known := sensorcache.New(metadata, s.options.Clock)
	alerts := detect.NewAlertPublisher(s.PubSub, pushbridge.TopicAlerts)
	s.onStop("alerts topic", func() error { alerts.Stop(); return nil })
	predictor := detect.NewAnomalyDetector(s.loader(), metadata, cmp.Or(s.options.PredictionSample, predictionSample), s.log, nil)
	trainer := train.New(metadata, table, s.Models, cmp.Or(s.options.TrainingRows, trainingRows), s.options.Clock, s.log, nil)
	steps := map[string]push.HandleFunc{
		"ingest":     ingest.New(table, known, s.log, nil).Handle,
		"detect":     detect.New(known, alerts, predictor, alert.Defaults(), s.log, nil).Handle,
		"storealert": storealert.New(metadata, s.log, nil).Handle,
		"train":      trainer.Handle,
	}
	mux := http.NewServeMux()
	for function, step := range steps {
		if s.options.Step != nil {
			step = s.options.Step(function, step)
		}
		mux.Handle("/"+function, push.Handler(s.log, s.options.Clock, step))
	}
	address, err := s.serve(ctx, "functions", mux)
	if err != nil {
		return err
	}
	pushes := s.options.PubSubEmulator != ""
	subscriptions, err := pushbridge.Build(ctx, s.PubSub, Project, func(function string) string { return address + "/" + function }, pushes)
	if err != nil || pushes {
		return err
	}
	s.Bridge = pushbridge.New(s.PubSub, subscriptions, s.options.Bridge, s.log)
	s.run(ctx, "push bridge", s.Bridge.Run)
	s.onStop("pipeline", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		return s.Bridge.Drain(ctx)
	})
	return nil
}

// bigQuery reads where the emulator is, and what else the table needs.
func bigQuery(environ []string) (bqreadings.Config, error) {
	settings, err := config.Load[bqreadings.Config](environ)
	if err != nil {
		return settings, fmt.Errorf("BigQuery: %w", err)
	}
	return settings, nil
}
