package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"coldaisle.dev/shared/tracing"
)

// MaxBody is the largest push request accepted, in bytes. Our largest message
// is under 2.5 KB; the rest is for attributes and for later fields.
const MaxBody = 1 << 20

// A HandleFunc handles one message. It returns nil only once its effect is durable:
// the message is then acknowledged and never seen again. Any error makes Pub/Sub
// deliver the message again, and after the subscription's limit move it to the
// dead letter topic; see [Permanent].
type HandleFunc func(ctx context.Context, m Message) error

type permanentError struct{ err error }

func (e permanentError) Error() string { return e.err.Error() }
func (e permanentError) Unwrap() error { return e.err }

// Permanent marks an error that no retry can mend, such as a malformed message.
// A push endpoint cannot refuse a message for good: it refuses every attempt, and
// logs why, until Pub/Sub moves the message to the dead letter topic.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err: err}
}

// IsPermanent reports whether an error was marked by [Permanent].
func IsPermanent(err error) bool {
	_, ok := errors.AsType[permanentError](err)
	return ok
}

// Handler serves a handle function to Pub/Sub. It answers
//
//	204  its effect is durable
//	400  the body is no push message
//	405  not a POST
//	413  the body is over MaxBody
//	422  it failed with a Permanent error
//	503  it failed; a retry can help
//	500  it panicked; logged with its stack
//
// Everything but the first is a refusal to Pub/Sub, which tries again with
// backoff. Its spans and log lines belong to the trace in the message's attributes.
// A client that goes away cancels its context.
// A message without a publish time, which Pub/Sub always gives, is published now.
func Handler(log *slog.Logger, clock func() time.Time, handle HandleFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		if err != nil {
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				log.ErrorContext(r.Context(), "push request refused", "reason", "body over limit", "limit_bytes", MaxBody)
				http.Error(w, "body over limit", http.StatusRequestEntityTooLarge)
				return
			}
			http.Error(w, "body could not be read", http.StatusBadRequest)
			return
		}
		message, err := Decode(body)
		if err != nil {
			log.ErrorContext(r.Context(), "push request refused", "reason", err.Error())
			http.Error(w, ErrEnvelope.Error(), http.StatusBadRequest)
			return
		}
		if message.PublishTime.IsZero() {
			message.PublishTime = clock().UTC()
		}
		ctx := tracing.Extract(r.Context(), message.Attributes)
		w.WriteHeader(statusCode(ctx, log, message, recoverPanic(ctx, message, handle)))
	})
}

// statusCode returns the status of the answer and logs an error once.
func statusCode(ctx context.Context, log *slog.Logger, m Message, err error) int {
	if err == nil {
		return http.StatusNoContent
	}
	attributes := []any{
		"error", err.Error(), "message_id", m.ID, "subscription", m.Subscription, "delivery_attempt", m.DeliveryAttempt,
	}
	if panicked, ok := errors.AsType[panicError](err); ok {
		log.ErrorContext(ctx, "function panicked", append(attributes, "stack", string(panicked.stack))...)
		return http.StatusInternalServerError
	}
	if IsPermanent(err) {
		log.ErrorContext(ctx, "message refused permanently", attributes...)
		return http.StatusUnprocessableEntity
	}
	log.WarnContext(ctx, "message failed, will be retried", attributes...)
	return http.StatusServiceUnavailable
}

type panicError struct {
	value any
	stack []byte
}

func (e panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recoverPanic turns a panic of handle into an error, so that one message cannot take
// the instance and the messages beside it down.
func recoverPanic(ctx context.Context, m Message, handle HandleFunc) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicError{value: value, stack: debug.Stack()}
		}
	}()
	return handle(ctx, m)
}
