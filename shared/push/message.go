// Package push is the border between Pub/Sub's push delivery and a function:
// it decodes the envelope, bounds it, calls the handle function, and turns its error
// into the status by which Pub/Sub acknowledges or redelivers the message.
//
// The Functions Framework could convert a push request to a CloudEvent, but it
// would drop the delivery attempt and the subscription and accept a body of any
// size. See https://cloud.google.com/pubsub/docs/push#receive_push.
package push

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/v1"
)

// Message is one delivery of a Pub/Sub message.
type Message struct {
	Data            []byte            `json:"data,omitempty"` // base64 on the wire
	Attributes      map[string]string `json:"attributes,omitempty"`
	ID              string            `json:"messageId"`
	PublishTime     time.Time         `json:"publishTime,omitzero"`
	OrderingKey     string            `json:"orderingKey,omitempty"`
	Subscription    string            `json:"-"` // projects/P/subscriptions/S
	DeliveryAttempt int               `json:"-"` // 1 for the first; 0 where the subscription has no dead letter topic
}

// envelope is the JSON body that Pub/Sub posts.
type envelope struct {
	Message         *Message `json:"message"`
	Subscription    string   `json:"subscription"`
	DeliveryAttempt int      `json:"deliveryAttempt,omitzero"`
}

// ErrEnvelope marks a body that is not a Pub/Sub push request.
var ErrEnvelope = errors.New("body is not a Pub/Sub push message")

// Decode reads a push request's body.
func Decode(body []byte) (Message, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	if e.Message == nil {
		return Message{}, fmt.Errorf("%w: no message", ErrEnvelope)
	}
	e.Message.PublishTime = e.Message.PublishTime.UTC()
	e.Message.Subscription, e.Message.DeliveryAttempt = e.Subscription, e.DeliveryAttempt
	return *e.Message, nil
}

// Encode writes the body that Pub/Sub would post for a message, for the local queue and for
// tests.
func Encode(m Message) ([]byte, error) {
	m.PublishTime = m.PublishTime.UTC()
	body, err := json.Marshal(envelope{&m, m.Subscription, m.DeliveryAttempt})
	if err != nil {
		return nil, fmt.Errorf("encode push message %s: %w", m.ID, err)
	}
	return body, nil
}
