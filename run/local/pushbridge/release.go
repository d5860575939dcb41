package pushbridge

import (
	"sync"

	"cloud.google.com/go/pubsub/v2/pstest"
)

// Release returns a [Config.Settled] that lets the Pub/Sub fake forget what was
// delivered everywhere, and calls next, if that is not nil. The fake keeps every
// message for a test to look at, which for a system that runs for days would be
// all its memory; what remains of each is a few dozen bytes.
func Release(server *pstest.Server, project string, next func(messageID string)) func(messageID string) {
	r := &releaser{server: server, project: project, done: map[string]int{}}
	return func(id string) {
		if next != nil {
			next(id)
		}
		r.settled(id)
	}
}

type releaser struct {
	server  *pstest.Server
	project string

	mu   sync.Mutex
	done map[string]int // subscriptions that are done with a message others still have
}

func (r *releaser) settled(id string) {
	message := r.server.Message(id)
	if message == nil {
		return
	}
	subscriptions := 0
	for _, route := range Routes() {
		if TopicName(r.project, route.Topic) == message.Topic {
			subscriptions++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[id]++; r.done[id] < subscriptions {
		return
	}
	delete(r.done, id)
	message.Data, message.Attributes = nil, nil
}
