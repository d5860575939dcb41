package rest

import (
	"net/http"
	"strings"
)

// Router uses two ServeMux. POST /alerts/thresholds/{customer_id} and POST
// /alerts/{alert_id}/acknowledge both match /alerts/thresholds/acknowledge,
// which one ServeMux rejects; the specification wants both, so the paths of
// thresholds have a ServeMux of their own.
type Router struct {
	thresholds, other *http.ServeMux
}

const thresholdsPath = "/api/v1/alerts/thresholds/"

// NewRouter returns a router that knows no path.
func NewRouter() *Router {
	return &Router{thresholds: http.NewServeMux(), other: http.NewServeMux()}
}

func (r *Router) of(path string) *http.ServeMux {
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

// ServeHTTP answers unknown paths and methods in JSON, where ServeMux
// answers in plain text and redirects to the shorter form of a path.
func (r *Router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if notCanonical(request.URL.Path) {
		WriteError(w, NewError(http.StatusNotFound, DetailNotFound))
		return
	}
	mux := r.of(request.URL.Path)
	handler, pattern := mux.Handler(request)
	if pattern != "" {
		mux.ServeHTTP(w, request)
		return
	}
	var recorder statusRecorder
	handler.ServeHTTP(&recorder, request)
	if recorder.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", recorder.Header().Get("Allow"))
		WriteError(w, NewError(http.StatusMethodNotAllowed, detailMethodNotAllowed))
		return
	}
	WriteError(w, NewError(http.StatusNotFound, DetailNotFound))
}

// notCanonical reports a path that ServeMux would redirect.
func notCanonical(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../")
}

// statusRecorder keeps the status and header of an answer and drops its body.
type statusRecorder struct {
	header http.Header
	status int
}

func (h *statusRecorder) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}

func (h *statusRecorder) Write(p []byte) (int, error) { return len(p), nil }

func (h *statusRecorder) WriteHeader(status int) { h.status = status }
