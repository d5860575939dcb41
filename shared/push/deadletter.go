package push

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"coldaisle.dev/shared/parallel"
)

// Attributes of a message that a function itself published to its dead letter topic.
// [DecodeDeadLetter] reconstructs the refused envelope from them.
const (
	deadLetterPrefix = "dead_letter_"

	AttributeFunction    = deadLetterPrefix + "function"     // the one that refused it: a topic may feed several
	AttributeReason      = deadLetterPrefix + "reason"       // a [Reason]
	AttributeError       = deadLetterPrefix + "error"        // the error's text, cut to 1,024 bytes
	AttributeAttempt     = deadLetterPrefix + "attempt"      // of the delivery that was refused
	AttributeTrace       = deadLetterPrefix + "trace"        // trace id, absent without one
	AttributePublishTime = deadLetterPrefix + "publish_time" // of the original, RFC 3339
	AttributeMessageID   = deadLetterPrefix + "message_id"   // of the original
)

// Attributes that Pub/Sub adds when it moves a message to the dead letter topic itself,
// after the subscription's last attempt.
// See https://cloud.google.com/pubsub/docs/handling-failures.
const (
	forwardedPrefix = "CloudPubSubDeadLetter"

	ForwardedDeliveryCount = forwardedPrefix + "SourceDeliveryCount"
	ForwardedSubscription  = forwardedPrefix + "SourceSubscription"
	ForwardedPublishTime   = forwardedPrefix + "SourceTopicPublishTime"
)

// Pub/Sub's limits. See https://cloud.google.com/pubsub/quotas#resource_limits.
const (
	maxAttributes     = 100
	maxAttributeBytes = 1024
)

// deadLetterTimeout bounds a publish to the dead letter topic. Together with the
// function's own timeout it is shorter than the acknowledgement deadline.
const deadLetterTimeout = 5 * time.Second

// A Reason says in one word why a message was dead-lettered.
type Reason string

// The reasons. They are few, because each is a label of a metric.
const (
	ReasonMalformed  Reason = "malformed"
	ReasonTooLarge   Reason = "too_large"
	ReasonUnknownRun Reason = "unknown_run"
	ReasonSignature  Reason = "signature" // wrong, or of a gateway that is not enrolled
	ReasonRevoked    Reason = "revoked"   // from a revoked gateway
	ReasonStale      Reason = "stale"     // signed, but not published at the time that it states
	ReasonUnsigned   Reason = "unsigned"  // while only enrolled gateways may send
	ReasonPanic      Reason = "panic"
	ReasonRejected   Reason = "rejected"  // by a constraint of the database, or as a row of the time-series table
	ReasonExhausted  Reason = "exhausted" // moved by Pub/Sub after the subscription's last attempt
)

// Reasons lists the reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonTooLarge, ReasonUnknownRun, ReasonSignature, ReasonRevoked, ReasonStale, ReasonUnsigned, ReasonPanic, ReasonRejected, ReasonExhausted,
	}
}

// MaxUnexpectedAttempts is the delivery attempt at which a message with an [Unexpected] error
// is dead-lettered.
const MaxUnexpectedAttempts = 5

// A DeadLetter publishes to the dead letter topic and returns once Pub/Sub has the
// message.
type DeadLetter interface {
	Publish(ctx context.Context, data []byte, attributes map[string]string) error
}

// refusal is an error with the reason why a message cannot be handled.
type refusal struct {
	err       error
	reason    Reason
	permanent bool
}

func (e refusal) Error() string { return e.err.Error() }
func (e refusal) Unwrap() error { return e.err }

// Permanent marks an error that no retry can remove, such as a malformed message. The
// message is dead-lettered at once.
func Permanent(reason Reason, err error) error { return refuse(reason, err, true) }

// Unexpected marks an error that should not happen and may not happen again. The
// message is dead-lettered at attempt [MaxUnexpectedAttempts]. A panic, and an error of
// PostgreSQL about the data (SQLSTATE class 22 or 23), need no mark.
func Unexpected(reason Reason, err error) error { return refuse(reason, err, false) }

func refuse(reason Reason, err error, permanent bool) error {
	if err == nil {
		return nil
	}
	return refusal{err: err, reason: reason, permanent: permanent}
}

// IsPermanent reports whether an error was marked by [Permanent].
func IsPermanent(err error) bool {
	r, ok := errors.AsType[refusal](err)
	return ok && r.permanent
}

// Refused reports whether an error is about its message, rather than one that may pass.
func Refused(err error) bool {
	_, refused := reasonOf(err)
	return refused
}

// sqlError is an error of PostgreSQL, as pgx returns it.
type sqlError interface {
	error
	SQLState() string
}

// reasonOf returns why an error refuses its message, or false if the error may pass.
func reasonOf(err error) (reason Reason, ok bool) {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.reason, true
	}
	if _, ok := errors.AsType[parallel.PanicError](err); ok {
		return ReasonPanic, true
	}
	if refused, ok := errors.AsType[sqlError](err); ok {
		// 22 is "data exception", 23 "integrity constraint violation".
		if state := refused.SQLState(); strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") {
			return ReasonRejected, true
		}
	}
	return "", false
}

// publishDeadLetter publishes a message as it came, with the attributes that are needed to
// examine and to redeliver it. The function's own context may have ended.
func publishDeadLetter(ctx context.Context, to DeadLetter, function string, m Message, reason Reason, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadLetterTimeout)
	defer cancel()
	attributes := map[string]string{
		AttributeFunction:    function,
		AttributeReason:      string(reason),
		AttributeError:       clip(cause.Error()),
		AttributeAttempt:     strconv.Itoa(m.DeliveryAttempt),
		AttributePublishTime: m.PublishTime.UTC().Format(time.RFC3339Nano),
		AttributeMessageID:   clip(m.ID),
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		attributes[AttributeTrace] = span.TraceID().String()
	}
	// Our messages have a handful of attributes; others' are left out if there are too many,
	// so that the message is dead-lettered all the same.
	if original := withoutDeadLetter(m.Attributes); len(original)+len(attributes) <= maxAttributes {
		maps.Copy(attributes, original)
	}
	return to.Publish(ctx, m.Data, attributes)
}

// clip cuts a text to the length that Pub/Sub allows for an attribute's value.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxAttributeBytes)], "") // without half a rune
}

// withoutDeadLetter returns the publisher's own attributes of a message, without those that
// dead-lettering adds.
func withoutDeadLetter(attributes map[string]string) map[string]string {
	original := maps.Clone(attributes)
	maps.DeleteFunc(original, func(name, _ string) bool {
		return strings.HasPrefix(name, deadLetterPrefix) || strings.HasPrefix(name, forwardedPrefix)
	})
	return original
}

// DeadLettered is a message of a dead letter topic.
type DeadLettered struct {
	Message  Message // the refused envelope, including its attempt
	Function string
	Reason   Reason
	Error    string // empty if Pub/Sub moved it
	Trace    string // empty for none
}

// DecodeDeadLetter reads a message of a dead letter topic, whether a function or Pub/Sub
// itself published it there. id is the message's id in that topic.
func DecodeDeadLetter(id string, data []byte, attributes map[string]string) (DeadLettered, error) {
	d := DeadLettered{
		Message: Message{ID: attributes[AttributeMessageID], Data: data, Attributes: withoutDeadLetter(attributes)},
		Reason:  Reason(attributes[AttributeReason]), Error: attributes[AttributeError], Trace: attributes[AttributeTrace],
		Function: attributes[AttributeFunction],
	}
	published, attempt := attributes[AttributePublishTime], attributes[AttributeAttempt]
	// Pub/Sub's own attributes take precedence: a publisher may have set ours, but a
	// function removes Pub/Sub's.
	if subscription, ok := attributes[ForwardedSubscription]; ok {
		d = DeadLettered{Message: d.Message, Reason: ReasonExhausted, Function: subscription[strings.LastIndex(subscription, "/")+1:]}
		d.Message.ID = id
		published, attempt = attributes[ForwardedPublishTime], attributes[ForwardedDeliveryCount]
	}
	if d.Function == "" {
		return d, errors.New("no attribute says which function refused the message")
	}
	var err error
	if d.Message.PublishTime, err = time.Parse(time.RFC3339Nano, published); err != nil {
		return d, fmt.Errorf("publish time of the original: %w", err)
	}
	if d.Message.DeliveryAttempt, err = strconv.Atoi(attempt); err != nil {
		return d, fmt.Errorf("attempt: %w", err)
	}
	return d, nil
}
