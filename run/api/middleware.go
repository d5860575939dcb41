package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/rs/cors"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/tracing"
)

// defaultOrigins are the origins of a local development server (contract 1.11).
func defaultOrigins() []string {
	return []string{
		"http://localhost:5173", "http://localhost:3000",
		"http://127.0.0.1:5173", "http://127.0.0.1:3000",
	}
}

// preflightSeconds is how long a browser may remember a preflight: Chromium's
// longest.
const preflightSeconds = 7200

// compressFrom is the smallest answer, in bytes, that is worth compressing: a smaller
// one fits one packet.
const compressFrom = 1400

// middleware wraps the router in the handlers that every request passes.
func middleware(cfg Config, clients auth.Clients, log *slog.Logger, router http.Handler) (http.Handler, error) {
	compress, err := gzhttp.NewWrapper(
		gzhttp.MinSize(compressFrom),
		gzhttp.ContentTypes([]string{"application/json", "text/csv", "text/plain", "application/openmetrics-text", "text/html", "text/css", "text/javascript"}),
	)
	if err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	origins := cfg.Origins
	if len(origins) == 0 {
		origins = defaultOrigins()
	}
	crossOrigin := cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		},
		AllowedHeaders:   []string{"*"},
		ExposedHeaders:   []string{requestlog.RequestIDHeader, "Retry-After", "Link", "X-Total-Count", "ETag"},
		AllowCredentials: true,
		MaxAge:           preflightSeconds,
	})
	handler := crossOrigin.Handler(securityHeaders(compress(conditional(router))))
	return clients.Identify(tracing.Middleware("api", requestlog.Middleware(log, cfg.Clock, healthPath, recoverPanics(log, handler)))), nil
}

// securityHeaders forbids browsers to guess the content type, and caches to store the
// answer.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// recoverPanics answers a panic with 500 and logs its stack. If part of the answer has
// been sent, it cuts the connection instead, so that the client does not mistake that part
// for the whole.
func recoverPanics(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(value)
			}
			log.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			if requestlog.HeaderWritten(ctx) {
				panic(http.ErrAbortHandler)
			}
			rest.WriteError(w, rest.NewError(http.StatusInternalServerError, rest.DetailInternal))
		}()
		next.ServeHTTP(w, r)
	})
}

// maxTagged is the longest answer that gets an entity tag, in bytes: a month of a chart
// in 720 parts is a third of it.
const maxTagged = 256 << 10

// conditional gives JSON answers to GET an entity tag of their content, and answers 304 to a
// client that sends it back, so that a page that polls mostly hears that nothing has changed
// (contract 1.15). It saves the transfer, not the queries. An answer with a tag of its own
// passes.
func conditional(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		held := &heldAnswer{ResponseWriter: w}
		next.ServeHTTP(held, r)
		if !held.holds {
			return
		}
		sum := sha256.Sum256(held.body.Bytes())
		tag := fmt.Sprintf(`W/"%x"`, sum[:12])
		w.Header().Set("ETag", tag)
		if rest.Matches(r.Header.Get("If-None-Match"), tag) {
			w.Header().Del("Content-Type")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		held.pass()
	})
}

// heldAnswer holds an answer that can get a tag until it is complete.
type heldAnswer struct {
	http.ResponseWriter

	begun, holds bool
	body         bytes.Buffer
}

// Unwrap gives the deadlines of the connection to [http.ResponseController].
func (h *heldAnswer) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *heldAnswer) WriteHeader(status int) {
	h.begun = true
	header := h.Header()
	if status == http.StatusOK && header.Get("ETag") == "" && strings.HasPrefix(header.Get("Content-Type"), "application/json") {
		h.holds = true
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

func (h *heldAnswer) Write(b []byte) (int, error) {
	if !h.begun {
		h.WriteHeader(http.StatusOK)
	}
	if h.holds && h.body.Len()+len(b) > maxTagged {
		h.pass()
	}
	if h.holds {
		return h.body.Write(b) //nolint:wrapcheck // never fails
	}
	return h.ResponseWriter.Write(b) //nolint:wrapcheck // of the connection, as the handler expects it
}

// pass sends the held part; more is coming, so there is no tag.
func (h *heldAnswer) pass() {
	h.holds = false
	h.ResponseWriter.WriteHeader(http.StatusOK)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client may have gone
}
