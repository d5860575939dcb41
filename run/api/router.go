package api

import (
	"net/http"
	"strings"
)

// router is net/http's, twice. POST /alerts/thresholds/{customer_id} and POST
// /alerts/{alert_id}/acknowledge both match /alerts/thresholds/acknowledge,
// which one ServeMux refuses; the specification wants both, so paths of
// thresholds have a router of their own.
type router struct {
	thresholds, other *http.ServeMux
}

const thresholdsPath = "/api/v1/alerts/thresholds/"

func newRouter() *router {
	return &router{thresholds: http.NewServeMux(), other: http.NewServeMux()}
}

func (r *router) of(path string) *http.ServeMux {
	if strings.HasPrefix(path, thresholdsPath) {
		return r.thresholds
	}
	return r.other
}

// HandleFunc adds a handler for a pattern of a method and a path.
func (r *router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	_, path, _ := strings.Cut(pattern, " ")
	r.of(path).HandleFunc(pattern, handler)
}

// ServeHTTP answers unknown paths and methods in JSON, where the router of
// net/http answers in plain text and redirects what it would spell otherwise.
func (r *router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if unclean(request.URL.Path) {
		writeProblem(w, http.StatusNotFound, detailNotFound)
		return
	}
	mux := r.of(request.URL.Path)
	refusal, pattern := mux.Handler(request)
	if pattern != "" {
		mux.ServeHTTP(w, request)
		return
	}
	var got headerOnly
	refusal.ServeHTTP(&got, request)
	if got.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", got.Header().Get("Allow"))
		writeProblem(w, http.StatusMethodNotAllowed, detailMethodNotAllowed)
		return
	}
	writeProblem(w, http.StatusNotFound, detailNotFound)
}

// unclean reports a path that the router would redirect to a shorter one.
func unclean(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../")
}

// headerOnly takes the status and header of an answer and drops its body.
type headerOnly struct {
	header http.Header
	status int
}

func (h *headerOnly) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}

func (h *headerOnly) Write(p []byte) (int, error) { return len(p), nil }

func (h *headerOnly) WriteHeader(status int) { h.status = status }
