package rest

import (
	"net/http"
	"strings"

	"coldaisle.dev/shared/httpserver"
)

// Router sends requests to operations and pages. It has two muxes: POST
// /alerts/thresholds/{customer_id} and POST /alerts/{alert_id}/acknowledge both match
// /alerts/thresholds/acknowledge, which one ServeMux rejects; the specification has
// both, so the paths of thresholds have a mux of their own.
type Router struct {
	thresholds, other *httpserver.Mux
}

const thresholdsPath = "/api/v1/alerts/thresholds/"

// NewRouter returns a router without routes.
func NewRouter() *Router {
	return &Router{thresholds: httpserver.NewMux(WriteStatus), other: httpserver.NewMux(WriteStatus)}
}

// WriteStatus answers with a status and its standard detail.
func WriteStatus(w http.ResponseWriter, status int) {
	WriteError(w, NewError(status, http.StatusText(status)))
}

func (r *Router) of(path string) *httpserver.Mux {
	if strings.HasPrefix(path, thresholdsPath) {
		return r.thresholds
	}
	return r.other
}

// HandleFunc adds a handler for a pattern of a method and a path.
func (r *Router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	_, path, _ := strings.Cut(pattern, " ")
	r.of(path).HandleFunc(pattern, handler)
}

// ServeHTTP implements [http.Handler].
func (r *Router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.of(request.URL.Path).ServeHTTP(w, request)
}
