package system

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
)

// publishTimeout bounds a publish of the system itself.
const publishTimeout = 4 * time.Second

// startPipeline serves the functions over HTTP and starts the bridge that pushes the
// subscriptions' messages to them.
func (s *System) startPipeline(ctx context.Context) error {
	pool, err := s.pipelinePool(ctx)
	if err != nil {
		return err
	}
	metadata := store.New(pool)
	var table readings.Appender = s.Readings
	if s.options.BigQuery.Emulator == "" {
		table = pgreadings.New(pool, s.options.Clock)
	}
	detection := config.Defaults[detect.Config]()
	sensors := sensorcache.New(metadata, s.options.Clock)
	alerts := detect.NewAlertPublisher(s.PubSub, pushbridge.TopicAlerts)
	s.opened.Push("alerts topic", func() error { alerts.Stop(); return nil })
	finder := detect.NewFinder(metadata, s.options.Clock, s.log)
	predictor := detect.NewAnomalyDetector(s.loader(), finder, metadata, cmp.Or(s.options.PredictionSample, detection.PredictionSample), s.log, nil)
	trainer := train.New(store.New(s.Pool), s.Readings, s.Models, cmp.Or(s.options.TrainingRows, config.Defaults[train.Config]().Rows), s.options.Clock, s.log, nil)
	from := origin.New(metadata, s.options.Clock, origin.Options{})
	handlers := map[string]push.HandleFunc{
		"ingest":     ingest.New(from, ingest.NewStates(metadata, s.options.Clock), table, sensors, s.log, nil).Handle,
		"detect":     detect.New(from, sensors, alerts, predictor, detection.Fallback.Thresholds(), s.log, nil).Handle,
		"storealert": storealert.New(metadata, detection.Fallback.Thresholds(), s.log, nil).Handle,
		"train":      trainer.Handle,
	}
	deadLetters := map[string]push.DeadLetter{}
	for _, route := range pushbridge.Routes() {
		deadLetter := publisher.NewSingle(s.PubSub, route.Topic+pushbridge.DeadLetterSuffix, publishTimeout)
		s.opened.Push("dead letter of "+route.Function, func() error { deadLetter.Stop(); return nil })
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
	if s.FunctionsURL, err = s.serve(ctx, "functions", mux); err != nil {
		return err
	}
	s.FunctionsURL += "/"
	emulator := s.options.PubSubEmulator != ""
	ensure := func(ctx context.Context) ([]pushbridge.Subscription, error) {
		return pushbridge.EnsureTopology(ctx, s.PubSub, Project, func(function string) string { return s.FunctionsURL + function }, emulator)
	}
	subscriptions, err := ensure(ctx)
	if err != nil {
		return err
	}
	if emulator {
		s.runComponent(ctx, "topology", func(ctx context.Context) error {
			return s.keepTopology(ctx, func(ctx context.Context) error { _, err := ensure(ctx); return err })
		})
		return nil
	}
	s.Bridge = pushbridge.New(s.PubSub, subscriptions, s.options.Bridge, s.log)
	s.runComponent(ctx, "push bridge", s.Bridge.Run)
	return nil
}

// pipelinePool returns connections for the functions that do not wait for the disk at
// each COMMIT. Nothing is lost by it: Pub/Sub keeps a message in the same database
// until after that COMMIT, and PostgreSQL's log is on disk up to some point: a crash
// that undoes what a function stored undoes the acknowledgement, too, and the message
// comes again. Training is not among them, because its models are elsewhere.
func (s *System) pipelinePool(ctx context.Context) (*pgxpool.Pool, error) {
	if s.options.PubSubEmulator != "" { // it keeps nothing
		return s.Pool, nil
	}
	config := s.Pool.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, fmt.Errorf("database pool of the pipeline: %w", err)
	}
	s.opened.Push("database pool of the pipeline", closing.NoError(pool.Close))
	return pool, nil
}

// An emulator that ends forgets its topics. So often they are looked for, and for so
// long an answer is waited for.
const (
	topologyInterval = time.Second
	topologyTimeout  = 10 * time.Second
)

// keepTopology makes the topics and subscriptions again when the emulator was started
// again.
func (s *System) keepTopology(ctx context.Context, ensure func(context.Context) error) error {
	routes := pushbridge.Routes()
	last := pushbridge.SubscriptionName(Project, routes[len(routes)-1].Function)
	ticker := time.NewTicker(topologyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		call, cancel := context.WithTimeout(ctx, topologyTimeout)
		_, err := s.PubSub.SubscriptionAdminClient.GetSubscription(call, &pubsubpb.GetSubscriptionRequest{Subscription: last})
		if status.Code(err) == codes.NotFound {
			s.log.WarnContext(ctx, "the Pub/Sub emulator has no topics any more, making them again")
			s.topology.Lock()
			err = ensure(call)
			s.topology.Unlock()
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the Pub/Sub emulator does not answer", "error", err.Error())
		}
	}
}

// publishAfterTopology lets publishes wait while topics are made again: a message
// that is published before the subscriptions are there reaches nobody.
func (s *System) publishAfterTopology(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if _, ok := request.(*pubsubpb.PublishRequest); ok {
		s.topology.RLock()
		defer s.topology.RUnlock()
	}
	return invoke(ctx, method, request, reply, connection, options...)
}
