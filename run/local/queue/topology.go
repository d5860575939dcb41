package queue

import (
	"cmp"
	"time"
)

// The names in production, as in terraform.
const (
	TopicData       = "data"
	TopicAlerts     = "alerts"
	TopicRetraining = "model-retraining"

	// DeadLetterSuffix is appended to a topic's name to name its dead letter topic and
	// the subscription that retains the messages there.
	DeadLetterSuffix = "-dead-letter"
)

// PushTimeout is how long a function may take for a message, as terraform/modules/function
// sets it.
const PushTimeout = time.Minute

// Policy says how messages are pushed. Zero values mean production's.
type Policy struct {
	MaxAttempts    int           // before the dead letter
	MinBackoff     time.Duration // before the second attempt, doubled for each further one
	MaxBackoff     time.Duration
	MaxOutstanding int // posts of one subscription at once; 256 by default. An emulator has its own
}

// WithDefaults sets what is 0 as terraform/modules/function does: about 15 hours of retries.
func (p Policy) WithDefaults() Policy {
	return Policy{
		MaxAttempts: cmp.Or(p.MaxAttempts, 100), MinBackoff: cmp.Or(p.MinBackoff, 10*time.Second),
		MaxBackoff: cmp.Or(p.MaxBackoff, 10*time.Minute), MaxOutstanding: cmp.Or(p.MaxOutstanding, 256),
	}
}

// Topics lists the pipeline's topics. Each has a dead letter topic.
func Topics() []string { return []string{TopicData, TopicAlerts, TopicRetraining} }

// Route is one push subscription of the pipeline.
type Route struct {
	Function string // also the subscription's name
	Topic    string
}

// Routes lists the pipeline's push subscriptions.
func Routes() []Route {
	return []Route{
		{Function: "ingest", Topic: TopicData},
		{Function: "detect", Topic: TopicData},
		{Function: "storealert", Topic: TopicAlerts},
		{Function: "train", Topic: TopicRetraining},
	}
}

// TopicName is a topic's full resource name.
func TopicName(project, topic string) string { return "projects/" + project + "/topics/" + topic }

// SubscriptionName is a subscription's full resource name.
func SubscriptionName(project, subscription string) string {
	return "projects/" + project + "/subscriptions/" + subscription
}
