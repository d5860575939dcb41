package httpserver

import (
	"net/http"
	"strings"
)

// Mux is an [http.ServeMux] whose errors the caller writes. A ServeMux answers an
// unknown path or method in plain text, and redirects a path with "//", "." or ".."
// to its shorter form; a Mux answers such a path as an unknown one.
type Mux struct {
	mux   *http.ServeMux
	error func(w http.ResponseWriter, status int)
}

// NewMux returns a Mux without patterns. writeError writes the answer to an unknown
// path, with status 404, and to a wrong method, with status 405; the header Allow is
// set.
func NewMux(writeError func(w http.ResponseWriter, status int)) *Mux {
	return &Mux{mux: http.NewServeMux(), error: writeError}
}

// HandleFunc adds a handler, as [http.ServeMux.HandleFunc] does.
func (m *Mux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	m.mux.HandleFunc(pattern, handler)
}

// ServeHTTP implements [http.Handler].
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if redirected(r.URL.Path) {
		m.error(w, http.StatusNotFound)
		return
	}
	handler, pattern := m.mux.Handler(r)
	if pattern != "" {
		// Only this sets the values of the path's wildcards.
		m.mux.ServeHTTP(w, r)
		return
	}
	// ServeMux shows the allowed methods only in its answer.
	own := statusRecorder{header: http.Header{}}
	handler.ServeHTTP(&own, r)
	if own.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", own.Header().Get("Allow"))
		m.error(w, http.StatusMethodNotAllowed)
		return
	}
	m.error(w, http.StatusNotFound)
}

// redirected reports a path that ServeMux would redirect.
func redirected(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../")
}

// statusRecorder keeps the status and header of an answer and drops its body.
type statusRecorder struct {
	header http.Header
	status int
}

func (r *statusRecorder) Header() http.Header { return r.header }

func (r *statusRecorder) Write(p []byte) (int, error) { return len(p), nil }

func (r *statusRecorder) WriteHeader(status int) { r.status = status }
