package system

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// publishTimeout bounds a publish to a dead letter topic.
const publishTimeout = 4 * time.Second

// startPipeline serves the functions over HTTP and starts the bridge that pushes the
// subscriptions' messages to them.
func (s *System) startPipeline(ctx context.Context, table timeSeries) error {
	metadata := store.New(s.Pool)
	detection := config.Defaults[detect.Config]()
	sensors := sensorcache.New(metadata, s.options.Clock)
	alerts := detect.NewAlertPublisher(s.PubSub, pushbridge.TopicAlerts)
	s.onStop("alerts topic", func() error { alerts.Stop(); return nil })
	predictor := detect.NewAnomalyDetector(s.loader(), metadata, cmp.Or(s.options.PredictionSample, detection.PredictionSample), s.log, nil)
	trainer := train.New(metadata, table, s.Models, cmp.Or(s.options.TrainingRows, config.Defaults[train.Config]().Rows), s.options.Clock, s.log, nil)
	from := origin.New(metadata, s.options.Clock, origin.Options{})
	handlers := map[string]push.HandleFunc{
		"ingest":     ingest.New(from, ingest.NewStates(metadata), table, sensors, s.log, nil).Handle,
		"detect":     detect.New(from, sensors, alerts, predictor, detection.Defaults(), s.log, nil).Handle,
		"storealert": storealert.New(metadata, s.log, nil).Handle,
		"train":      trainer.Handle,
	}
	deadLetters := map[string]push.DeadLetter{}
	for _, route := range pushbridge.Routes() {
		deadLetter := publisher.NewSingle(s.PubSub, route.Topic+pushbridge.DeadLetterSuffix, publishTimeout)
		s.onStop("dead letter of "+route.Function, func() error { deadLetter.Stop(); return nil })
		deadLetters[route.Function] = deadLetter
	}
	mux := http.NewServeMux()
	for function, handler := range handlers {
		if s.options.WrapHandler != nil {
			handler = s.options.WrapHandler(function, handler)
		}
		mux.Handle("/"+function, push.Handler(push.Config{
			Function: function, DeadLetter: deadLetters[function], Clock: s.options.Clock, Log: s.log,
		}, handler))
	}
	address, err := s.serve(ctx, "functions", mux)
	if err != nil {
		return err
	}
	emulatorPushes := s.options.PubSubEmulator != ""
	subscriptions, err := pushbridge.EnsureTopology(ctx, s.PubSub, Project, func(function string) string { return address + "/" + function }, emulatorPushes)
	if err != nil || emulatorPushes {
		return err
	}
	s.Bridge = pushbridge.New(s.PubSub, subscriptions, s.options.Bridge, s.log)
	s.runComponent(ctx, "push bridge", s.Bridge.Run)
	return nil
}

// bigQuery reads the config of the BigQuery emulator and the table.
func bigQuery(environ []string) (bqreadings.Config, error) {
	settings, err := config.Load[bqreadings.Config](environ)
	if err != nil {
		return settings, fmt.Errorf("BigQuery: %w", err)
	}
	return settings, nil
}
