package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

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
