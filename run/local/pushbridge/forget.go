package pushbridge

import (
	"sync"

	"cloud.google.com/go/pubsub/v2/pstest"
)

// ForgetDelivered returns a [Config.OnDone] that drops the data of a message in the
// Pub/Sub fake once every subscription is done with it, and then calls next, if that
// is not nil. The fake keeps every message for tests; a system that runs for days
// would run out of memory. A few dozen bytes of each message remain.
func ForgetDelivered(server *pstest.Server, project string, next func(messageID string)) func(messageID string) {
	r := &forgetter{server: server, project: project, doneSubscriptions: map[string]int{}}
	return func(id string) {
		if next != nil {
			next(id)
		}
		r.messageDone(id)
	}
}

type forgetter struct {
	server  *pstest.Server
	project string

	mu                sync.Mutex
	doneSubscriptions map[string]int // by message id: subscriptions that are done, while others are not
}

func (r *forgetter) messageDone(id string) {
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
	if r.doneSubscriptions[id]++; r.doneSubscriptions[id] < subscriptions {
		return
	}
	delete(r.doneSubscriptions, id)
	message.Data, message.Attributes = nil, nil
}
