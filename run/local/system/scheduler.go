package system

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

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
		"daily refresh": {
			every: 24 * time.Hour, topic: queue.TopicRetraining,
			data: `{"triggered_by":"` + wire.DailyRefresh + `"}`,
		},
	}
}

// runJob publishes at once and then each time, until ctx ends.
func (s *System) runJob(ctx context.Context, name string, j job) error {
	ticker := time.NewTicker(j.every)
	defer ticker.Stop()
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
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
