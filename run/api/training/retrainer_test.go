package training

import (
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/wire"
)

// TestPublisher publishes through the real client.
func TestPublisher(t *testing.T) {
	t.Parallel()
	server := pubsubtest.Start(t)
	pubsubtest.Topics(t, server, "project", "model-retraining")
	client := pubsubtest.Client(t, server, "project")
	topic := NewPublisher(client, "model-retraining")
	t.Cleanup(topic.Stop)
	want := wire.Retraining{TrainingRunID: 5, TriggeredBy: "manual", ValidatedCount: 3, RequestedAt: time.Unix(100, 0).UTC()}
	must.Do(t, topic.Publish(t.Context(), want))
	messages := server.Messages()
	if len(messages) != 1 {
		t.Fatalf("%d messages", len(messages))
	}
	must.Equal(t, "the message", want, must.Get(wire.DecodeRetraining(messages[0].Data))(t))
	err := NewPublisher(client, "absent").Publish(t.Context(), want)
	must.Equal(t, "a topic that does not exist takes a request", false, err == nil)
}
