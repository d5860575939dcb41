// Package requestlog writes one log line about each request, and adds the request's
// id to every other line that is written for it.
package requestlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// RequestIDHeader returns the id of a request to the caller (contract 1.9).
const RequestIDHeader = "X-Request-Id"

// requestRecord is the log's data of one request and its answer.
type requestRecord struct {
	http.ResponseWriter

	requestID  string
	customerID int64 // 0 before or without authentication
	status     int   // 0 until the answer begins
	bytes      int64
}

type requestRecordKey struct{}

// requestRecordOf returns the record of a request's context, or an empty one.
func requestRecordOf(ctx context.Context) *requestRecord {
	if rec, ok := ctx.Value(requestRecordKey{}).(*requestRecord); ok {
		return rec
	}
	return &requestRecord{}
}

// SetCustomer adds the customer's id to the log line.
func SetCustomer(ctx context.Context, customerID int64) { requestRecordOf(ctx).customerID = customerID }

// RequestID returns the id of the context's request, empty outside of one.
func RequestID(ctx context.Context) string { return requestRecordOf(ctx).requestID }

// HeaderWritten reports whether the answer to the context's request has begun.
func HeaderWritten(ctx context.Context) bool { return requestRecordOf(ctx).status != 0 }

// WriteHeader records the status, except an informational one.
func (rec *requestRecord) WriteHeader(status int) {
	if rec.status == 0 && status >= http.StatusOK {
		rec.status = status
	}
	rec.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes of the answer as sent, after compression.
func (rec *requestRecord) Write(p []byte) (int, error) {
	rec.status = cmp.Or(rec.status, http.StatusOK)
	n, err := rec.ResponseWriter.Write(p)
	rec.bytes += int64(n)
	return n, err //nolint:wrapcheck // a writer passes its base's errors on
}

// Unwrap keeps deadlines within reach of http.ResponseController.
func (rec *requestRecord) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// Middleware gives each request an id and writes one line about it in Cloud Logging's
// form. The line has no address, header, query or body: the only personal data is the
// customer's id. A success at the path quiet, that of the frequent health checks, writes
// none.
func Middleware(log *slog.Logger, clock func() time.Time, quiet string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := clock()
		rec := &requestRecord{ResponseWriter: w, requestID: rand.Text()}
		w.Header().Set(RequestIDHeader, rec.requestID)
		ctx := context.WithValue(r.Context(), requestRecordKey{}, rec)
		inside := r.WithContext(ctx)
		defer func() {
			r.Pattern = inside.Pattern // for the name of the trace's span
			status := cmp.Or(rec.status, http.StatusOK)
			if r.URL.Path == quiet && status < http.StatusBadRequest {
				return
			}
			log.LogAttrs(ctx, severity(status), "request", httpRequestAttrs(inside, rec, status, clock().Sub(began))...)
		}()
		next.ServeHTTP(rec, inside)
	})
}

// severity of an answer. A service that is busy works as intended, so 503 is no error.
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

// httpRequestAttrs is the httpRequest field of Cloud Logging and our own ids. An unknown
// path may hold anything, so only known ones are written.
// See https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry#HttpRequest.
func httpRequestAttrs(r *http.Request, rec *requestRecord, status int, latency time.Duration) []slog.Attr {
	url := "(unknown path)"
	if r.Pattern != "" {
		url = r.URL.Path
	}
	attributes := []slog.Attr{
		slog.GroupAttrs("httpRequest",
			slog.String("requestMethod", r.Method), //nolint:sloglint // Cloud Logging's own name
			slog.String("requestUrl", url),         //nolint:sloglint // Cloud Logging's own name
			slog.Int("status", status),
			slog.Int64("responseSize", rec.bytes), //nolint:sloglint // Cloud Logging's own name
			slog.String("latency", strconv.FormatFloat(latency.Seconds(), 'f', 6, 64)+"s"),
			slog.String("protocol", r.Proto),
		),
	}
	if rec.customerID != 0 {
		attributes = append(attributes, slog.Int64("customer_id", rec.customerID))
	}
	if callerID := r.Header.Get(RequestIDHeader); loggable.MatchString(callerID) {
		attributes = append(attributes, slog.String("caller_request_id", callerID))
	}
	return attributes
}

// loggable matches a caller's id that is safe to log. It cannot replace our own: a caller
// could give two requests the same one, and the audit log names the request of a change.
var loggable = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestIDHandler adds the request's id to every line logged with its context.
type requestIDHandler struct{ slog.Handler }

// NewLogger returns a logger that adds the request's id.
func NewLogger(log *slog.Logger) *slog.Logger {
	return slog.New(requestIDHandler{log.Handler()})
}

func (h requestIDHandler) Handle(ctx context.Context, record slog.Record) error {
	if rec, ok := ctx.Value(requestRecordKey{}).(*requestRecord); ok {
		record.AddAttrs(slog.String("request_id", rec.requestID))
	}
	return h.Handler.Handle(ctx, record) //nolint:wrapcheck // a handler passes its base's errors on
}

func (h requestIDHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return requestIDHandler{h.Handler.WithAttrs(attributes)}
}

func (h requestIDHandler) WithGroup(name string) slog.Handler {
	return requestIDHandler{h.Handler.WithGroup(name)}
}
