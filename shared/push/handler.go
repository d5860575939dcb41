package push

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/tracing"
)

// Limits of a push request's body, in bytes.
const (
	// MaxBody is the largest body whose message is handled. Our largest message has 1,000
	// bytes; the rest is for attributes and for later fields.
	MaxBody = 1 << 20
	// maxPush is the largest body that Pub/Sub posts, 10 MB of data in base64 and attributes:
	// a message of up to this size can be dead-lettered.
	maxPush = 16 << 20
)

// A HandleFunc handles one message. It returns nil only once its effect is durable:
// the message is then acknowledged and never seen again. What an error does depends on
// its class:
//
//   - [Permanent]: the message is dead-lettered at once.
//   - [Unexpected], a panic, an error of PostgreSQL about the data: the message is
//     delivered again, and dead-lettered at [MaxUnexpectedAttempts].
//   - Any other error may pass: the message is delivered again until the subscription's
//     last attempt.
type HandleFunc func(ctx context.Context, m Message) error

// Config is what a handler needs besides the handle function.
type Config struct {
	Function   string // name, for dead letters
	DeadLetter DeadLetter
	Clock      func() time.Time
	Log        *slog.Logger
	Counters   *logmetrics.Counters // nil counts nothing
}

// Handler serves a handle function to Pub/Sub. It answers
//
//	204  its effect is durable
//	202  it was refused and has been dead-lettered
//	400  the body is not a push message
//	405  not a POST
//	413  the body is larger than Pub/Sub's
//	500  it panicked; logged with its stack
//	503  it failed, or could not be dead-lettered
//
// Pub/Sub treats 204 and 202 as an acknowledgement and delivers everything else again,
// with backoff. It slows down a whole subscription whose endpoint fails, so a message that
// no retry can help is acknowledged, but only after the dead letter topic has it.
//
// Spans and log lines belong to the trace in the message's attributes. A client that
// disconnects cancels its context. A message without a publish time, which Pub/Sub always
// sets, counts as published now.
func Handler(c Config, handle HandleFunc) *Receiver {
	return &Receiver{Config: c, handle: handle, large: make(chan struct{}, 1)}
}

// Receiver is the HTTP handler of a function's messages.
type Receiver struct {
	Config

	handle HandleFunc
	large  chan struct{} // holds a token while a body over MaxBody is in memory
}

// ServeHTTP implements [http.Handler].
func (h *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	handle := h.handle
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err == nil && len(body) > MaxBody {
		select {
		case h.large <- struct{}{}:
			defer func() { <-h.large }()
		case <-r.Context().Done():
			http.Error(w, "waited for another large body", http.StatusServiceUnavailable)
			return
		}
		var rest []byte
		rest, err = io.ReadAll(http.MaxBytesReader(w, r.Body, int64(maxPush-len(body))))
		body = append(body, rest...)
		handle = tooLarge(len(body))
	}
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			h.Log.ErrorContext(r.Context(), "push request refused", "reason", "body over limit", "limit_bytes", maxPush)
			http.Error(w, "body over limit", http.StatusRequestEntityTooLarge)
			return
		}
		http.Error(w, "body could not be read", http.StatusBadRequest)
		return
	}
	message, err := Decode(body)
	if err != nil {
		h.Log.ErrorContext(r.Context(), "push request refused", "reason", err.Error())
		http.Error(w, ErrEnvelope.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(h.receive(r.Context(), message, handle))
}

// Receive handles a message from within the process, as if it were decoded from a request's
// body, and returns the status that the answer would have.
func (h *Receiver) Receive(ctx context.Context, m Message) int {
	handle := h.handle
	if size := base64.StdEncoding.EncodedLen(len(m.Data)); size > MaxBody {
		handle = tooLarge(size)
	}
	return h.receive(ctx, m, handle)
}

// tooLarge returns a function that refuses a message whose body has size bytes.
func tooLarge(size int) HandleFunc {
	return func(context.Context, Message) error {
		return Permanent(ReasonTooLarge, fmt.Errorf("%d bytes, over the limit of %d", size, MaxBody))
	}
}

func (h *Receiver) receive(ctx context.Context, m Message, handle HandleFunc) int {
	if m.PublishTime.IsZero() {
		m.PublishTime = h.Clock().UTC()
	}
	ctx = tracing.Extract(ctx, m.Attributes)
	err := func() (err error) {
		defer parallel.Recover(&err) // one message must not end the instance and the messages beside it
		return handle(ctx, m)
	}()
	return h.status(ctx, m, err)
}

// status returns the status of the answer, logs an error once, and dead-letters a refused
// message.
func (h *Receiver) status(ctx context.Context, m Message, err error) int {
	if err == nil {
		h.Counters.Add(ctx, "messages_processed", 1)
		return http.StatusNoContent
	}
	attributes := []any{
		"error", err.Error(), "message_id", m.ID, "subscription", m.Subscription, "delivery_attempt", m.DeliveryAttempt,
	}
	reason, refused := reasonOf(err)
	if refused && (IsPermanent(err) || m.DeliveryAttempt >= MaxUnexpectedAttempts) {
		failed := publishDeadLetter(ctx, h.DeadLetter, h.Function, m, reason, err)
		if failed == nil {
			h.Log.ErrorContext(ctx, DeadLetterMessage, append(attributes, "reason", string(reason))...)
			h.Counters.Add(ctx, "messages_dead_lettered", 1)
			return http.StatusAccepted
		}
		attributes = append(attributes, "dead_letter_error", failed.Error())
	}
	h.Counters.Add(ctx, "messages_failed", 1)
	if _, isPanic := errors.AsType[parallel.PanicError](err); isPanic {
		h.Log.ErrorContext(ctx, "function panicked", attributes...)
		return http.StatusInternalServerError
	}
	h.Log.WarnContext(ctx, "message failed, will be retried", attributes...)
	return http.StatusServiceUnavailable
}

// DeadLetterMessage is the text of the log entry of a dead-lettered message, by which a
// log-based metric counts them.
const DeadLetterMessage = "message dead-lettered"
