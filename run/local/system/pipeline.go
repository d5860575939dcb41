package system

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// publishTimeout bounds a publish of the system itself.
const publishTimeout = 4 * time.Second

// startPipeline starts the functions and the pushes to them. They are served over HTTP too,
// for an emulator that pushes and for redelivery.
func (s *System) startPipeline(ctx context.Context) error {
	pool, err := s.pipelinePool(ctx)
	if err != nil {
		return err
	}
	s.pipeline = pool
	alerts := detect.NewAlertPublisher(s.PubSub, queue.TopicAlerts)
	s.opened.Push("alerts topic", closing.NoError(alerts.Stop))
	handlers := s.handlers(pool, alerts, pipeline.BatchWait(), s.options.Clock)
	trainer := train.New(learning.New(s.db), s.Readings, s.Models, config.Defaults[train.Config]().Rows, s.options.Clock, s.log)
	handlers["train"] = trainer.Handle
	mux, functions := http.NewServeMux(), map[string]http.Handler{}
	for _, route := range queue.Routes() {
		deadLetter := publisher.NewSingle(s.PubSub, route.Topic+queue.DeadLetterSuffix, publishTimeout)
		s.opened.Push("dead letter of "+route.Function, closing.NoError(deadLetter.Stop))
		handle := handlers[route.Function]
		if s.options.WrapHandler != nil {
			handle = s.options.WrapHandler(route.Function, handle)
		}
		functions[route.Function] = push.Handler(push.Config{
			Function: route.Function, DeadLetter: deadLetter, Clock: s.options.Clock, Log: s.log,
		}, handle)
		mux.Handle("/"+route.Function, functions[route.Function])
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("functions: %w", err)
	}
	s.FunctionsURL = urlOf(listener) + "/"
	s.runComponent(ctx, "functions", func(ctx context.Context) error { return gateway.Serve(ctx, listener, mux, s.log) })
	if s.Queue != nil {
		s.runComponent(ctx, "pushes", func(ctx context.Context) error { s.Queue.Run(ctx, functions); return nil })
		return nil
	}
	return EnsureTopology(ctx, s.PubSub, Project, func(function string) string { return s.FunctionsURL + function }, s.options.Delivery)
}

// handlers are those of the functions that a reading passes, in a clock's time.
func (s *System) handlers(pool *pgxpool.Pool, alerts detect.Publisher, wait coalesce.Wait, clock func() time.Time) map[string]push.HandleFunc {
	metadata := store.New(pool)
	detection := config.Defaults[detect.Config]()
	sensors := sensorcache.New(pipeline.New(metadata), wait, s.options.Clock)
	predictor := detect.NewAnomalyDetector(s.loader(), learning.New(metadata), cmp.Or(s.options.Questions, detect.Questions), clock, s.log)
	from := origin.New(accounts.New(metadata), clock, origin.Options{})
	return map[string]push.HandleFunc{
		"ingest":     ingest.New(from, pipeline.New(metadata), pgreadings.New(metadata, s.archive, clock), wait, clock, s.log, nil).Handle,
		"detect":     detect.New(from, sensors, alerts, incidents.New(metadata), predictor, detection.Defaults(), s.log, nil).Handle,
		"storealert": storealert.New(incidents.New(metadata), clock, s.log, nil).Handle,
	}
}

// pipelinePool returns connections that do not wait for the disk at each COMMIT, for the
// functions except training, whose models are in another place. Nothing is lost by it: the
// queue deletes a message in the same database, after that COMMIT. A crash that undoes what
// a function stored undoes the later deletion too, and the message is delivered again.
func (s *System) pipelinePool(ctx context.Context) (*pgxpool.Pool, error) {
	if s.Queue == nil { // an emulator keeps nothing
		return s.Pool, nil
	}
	config := s.Pool.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	// To plan the same statements anew for each reading costs more than to run them.
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, fmt.Errorf("database pool of the pipeline: %w", err)
	}
	s.opened.Push("database pool of the pipeline", closing.NoError(pool.Close))
	return pool, nil
}

// EnsureTopology creates the topics and subscriptions in gcloud's emulator, where they are
// missing: it pushes by itself. endpoint returns the URL of a function. A queue has them.
func EnsureTopology(ctx context.Context, client *pubsub.Client, project string, endpoint func(function string) string, policy queue.Policy) error {
	policy = policy.WithDefaults()
	for _, topic := range queue.Topics() {
		dead := topic + queue.DeadLetterSuffix
		for _, name := range []string{topic, dead} {
			_, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: queue.TopicName(project, name)})
			if err != nil && status.Code(err) != codes.AlreadyExists {
				return fmt.Errorf("create topic %s: %w", name, err)
			}
		}
		retained := &pubsubpb.Subscription{Name: queue.SubscriptionName(project, dead), Topic: queue.TopicName(project, dead)}
		if err := ensureSubscription(ctx, client, retained); err != nil {
			return err
		}
	}
	for _, route := range queue.Routes() {
		pushed := &pubsubpb.Subscription{
			Name: queue.SubscriptionName(project, route.Function), Topic: queue.TopicName(project, route.Topic),
			AckDeadlineSeconds: int32(queue.PushTimeout.Seconds()),
			PushConfig:         &pubsubpb.PushConfig{PushEndpoint: endpoint(route.Function)},
			RetryPolicy: &pubsubpb.RetryPolicy{
				MinimumBackoff: durationpb.New(policy.MinBackoff), MaximumBackoff: durationpb.New(policy.MaxBackoff),
			},
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{
				DeadLetterTopic:     queue.TopicName(project, route.Topic+queue.DeadLetterSuffix),
				MaxDeliveryAttempts: int32(policy.MaxAttempts), //nolint:gosec // 5 to 100
			},
		}
		if err := ensureSubscription(ctx, client, pushed); err != nil {
			return err
		}
	}
	return nil
}

func ensureSubscription(ctx context.Context, client *pubsub.Client, wanted *pubsubpb.Subscription) error {
	_, err := client.SubscriptionAdminClient.CreateSubscription(ctx, wanted)
	if status.Code(err) == codes.AlreadyExists && wanted.GetPushConfig() != nil {
		// An emulator that ran before this process still pushes to the port of the one before.
		err = client.SubscriptionAdminClient.ModifyPushConfig(ctx, &pubsubpb.ModifyPushConfigRequest{
			Subscription: wanted.GetName(), PushConfig: wanted.GetPushConfig(),
		})
	}
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create subscription %s: %w", wanted.GetName(), err)
	}
	return nil
}

// job is what Cloud Scheduler publishes in production, by terraform's main.tf.
type job struct {
	every      time.Duration
	topic      string
	data       string
	attributes map[string]string
}

func jobs() map[string]job {
	return map[string]job{
		"probe": {
			every: incident.ProbeInterval, topic: queue.TopicData,
			attributes: map[string]string{wire.NodeIDAttribute: reading.ProbeNodeID},
			data:       `{"node_id":"` + reading.ProbeNodeID + `","message_id":"scheduler","temperature":0,"humidity":0}`,
		},
		"daily refresh": { // the first of a day (UTC) makes its calibrations, the others find them made
			every: time.Hour, topic: queue.TopicRetraining,
			data: `{"triggered_by":"` + wire.DailyRefresh + `"}`,
		},
	}
}

// runJob publishes at once and then each time, until ctx ends.
func (s *System) runJob(ctx context.Context, name string, j job) error {
	message := &pubsubpb.PubsubMessage{Data: []byte(j.data), Attributes: j.attributes}
	select {
	case <-ctx.Done():
		return nil
	case <-s.pastOver: // until then the service is late
	}
	for {
		call, cancel := context.WithTimeout(ctx, publishTimeout)
		_, err := s.PubSub.TopicAdminClient.Publish(call, &pubsubpb.PublishRequest{
			Topic: queue.TopicName(Project, j.topic), Messages: []*pubsubpb.PubsubMessage{message},
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "a scheduled message cannot be published", "job", name, "error", err.Error())
		}
		if pause.For(ctx, j.every) != nil {
			return nil
		}
	}
}
