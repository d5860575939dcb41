package publisher_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
)

// TestTyped publishes through the real client.
func TestTyped(t *testing.T) {
	t.Parallel()
	server := pubsubtest.Start(t)
	pubsubtest.Topics(t, server, "project", "numbers")
	client := pubsubtest.Client(t, server, "project")
	odd := errors.New("odd")
	encode := func(n int) ([]byte, map[string]string, error) {
		if n%2 != 0 {
			return nil, nil, odd
		}
		return strconv.AppendInt(nil, int64(n), 10), map[string]string{"half": strconv.Itoa(n / 2)}, nil
	}
	numbers := publisher.NewTyped(client, "numbers", time.Minute, encode)
	t.Cleanup(numbers.Stop)
	must.Do(t, numbers.Publish(t.Context(), 8))
	must.Fail(t, "publish", numbers.Publish(t.Context(), 7), odd)
	messages := server.Messages()
	must.Hold(t, len(messages) == 1 && string(messages[0].Data) == "8" && messages[0].Attributes["half"] == "4",
		"published %v", messages)
	absent := publisher.NewTyped(client, "absent", time.Minute, encode)
	t.Cleanup(absent.Stop)
	must.Hold(t, absent.Publish(t.Context(), 8) != nil, "a topic that does not exist took a message")
}
