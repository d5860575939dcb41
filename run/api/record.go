package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// requestIDHeader carries the id of a request, ours or the caller's, back.
const requestIDHeader = "X-Request-Id"

// exchange is one request and its answer as the log sees them.
type exchange struct {
	http.ResponseWriter

	requestID  string
	customerID int64 // 0 before or without authentication
	status     int   // 0 until the answer begins
	bytes      int64
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a request's context, or an empty one.
func exchangeOf(ctx context.Context) *exchange {
	if e, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return e
	}
	return &exchange{}
}

// noteCaller lets the log line name the customer, by id alone.
func noteCaller(ctx context.Context, customerID int64) { exchangeOf(ctx).customerID = customerID }

func (e *exchange) begun() bool { return e.status != 0 }

// WriteHeader notes the status; informational ones do not begin the answer.
func (e *exchange) WriteHeader(status int) {
	if e.status == 0 && status >= http.StatusOK {
		e.status = status
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes of the answer as sent, after compression.
func (e *exchange) Write(p []byte) (int, error) {
	if e.status == 0 {
		e.status = http.StatusOK
	}
	n, err := e.ResponseWriter.Write(p)
	e.bytes += int64(n)
	return n, err //nolint:wrapcheck // a writer passes its base's errors on
}

// Unwrap keeps deadlines within reach of http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// Flush implements [http.Flusher] for the compressor, which asks by assertion.
func (e *exchange) Flush() { _ = http.NewResponseController(e.ResponseWriter).Flush() }

// record gives each request an id and writes one line about it in Cloud
// Logging's form. The line holds no address, no header, no query and no body:
// of personal data only the customer's id. Successful health checks, which come
// every few seconds, write none.
func (a *api) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := a.Clock()
		e := &exchange{ResponseWriter: w, requestID: requestID(r)}
		w.Header().Set(requestIDHeader, e.requestID)
		ctx := context.WithValue(r.Context(), exchangeKey{}, e)
		inside := r.WithContext(ctx)
		defer func() {
			r.Pattern = inside.Pattern // for the name of the trace's span
			status := e.status
			if status == 0 {
				status = http.StatusOK
			}
			if r.URL.Path == healthPath && status < http.StatusBadRequest {
				return
			}
			a.log.LogAttrs(ctx, severity(status), "request", a.line(inside, e, status, a.Clock().Sub(began))...)
		}()
		next.ServeHTTP(e, inside)
	})
}

// severity of an answer. That the service is busy is no failure of it.
func severity(status int) slog.Level {
	switch {
	case status == http.StatusServiceUnavailable:
		return slog.LevelWarn
	case status >= http.StatusInternalServerError:
		return slog.LevelError
	case status >= http.StatusBadRequest:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}

// line is the httpRequest field of Cloud Logging and our own ids. An unknown
// path may hold anything, so only known ones are written.
// See https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry#HttpRequest.
func (a *api) line(r *http.Request, e *exchange, status int, took time.Duration) []slog.Attr {
	url := "(unknown path)"
	if r.Pattern != "" {
		url = r.URL.Path
	}
	attributes := []slog.Attr{
		slog.Group("httpRequest", //nolint:sloglint // Cloud Logging's own name
			slog.String("requestMethod", r.Method), //nolint:sloglint // Cloud Logging's own name
			slog.String("requestUrl", url),         //nolint:sloglint // Cloud Logging's own name
			slog.Int("status", status),
			slog.Int64("responseSize", e.bytes), //nolint:sloglint // Cloud Logging's own name
			slog.String("latency", fmt.Sprintf("%.6fs", took.Seconds())),
			slog.String("protocol", r.Proto),
		),
	}
	if e.customerID != 0 {
		attributes = append(attributes, slog.Int64("customer_id", e.customerID))
	}
	return attributes
}

// requestID takes the caller's id when it is harmless to repeat, else a new one.
func requestID(r *http.Request) string {
	given := r.Header.Get(requestIDHeader)
	if given == "" || len(given) > 64 {
		return rand.Text()
	}
	for i := range len(given) {
		c := given[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return rand.Text()
		}
	}
	return given
}

// identified adds the request's id to every line logged on its behalf.
type identified struct{ slog.Handler }

func (h identified) Handle(ctx context.Context, record slog.Record) error {
	if e, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		record.AddAttrs(slog.String("request_id", e.requestID))
	}
	return h.Handler.Handle(ctx, record) //nolint:wrapcheck // a handler passes its base's errors on
}

func (h identified) WithAttrs(attributes []slog.Attr) slog.Handler {
	return identified{h.Handler.WithAttrs(attributes)}
}

func (h identified) WithGroup(name string) slog.Handler {
	return identified{h.Handler.WithGroup(name)}
}
