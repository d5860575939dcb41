// Package pages serves the documentation: two pages for people and the OpenAPI
// document for tools.
package pages

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/swaggest/swgui/v5/static"
	"github.com/vearutop/statigz"

	"coldaisle.dev/run/api/rest"
)

// files holds the two documentation pages and their scripts, and in built Redoc with
// its licences, which `make page` fetches. Swagger UI comes embedded in swaggest/swgui.
//
//go:embed all:site
var files embed.FS

// contentSecurityPolicy lets a documentation page load from this host alone. Both
// renderers write style attributes and draw inline images; Redoc searches in a worker
// that it makes from a blob.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
	"font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Register adds the documentation: people read /docs and /redoc, tools
// /openapi.json, the document. None needs a token, and none makes a browser ask
// another host. Where Redoc is not built in, /redoc says how to build it.
func Register(mux *rest.Router, document []byte) error {
	site, err := fs.Sub(files, "site")
	if err != nil {
		return fmt.Errorf("documentation pages: %w", err)
	}
	return register(mux, document, site)
}

func register(mux *rest.Router, document []byte, site fs.FS) error {
	redoc := "redoc.html"
	if _, err := fs.Stat(site, "built/redoc.standalone.js"); err != nil {
		redoc = "unbuilt.html"
	}
	for path, name := range map[string]string{"/docs": "docs.html", "/redoc": redoc} {
		page, err := fs.ReadFile(site, name)
		if err != nil {
			return fmt.Errorf("documentation page: %w", err)
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", contentSecurityPolicy)
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(page)
		})
	}
	own := withCacheControl(http.StripPrefix("/docs/pages/", http.FileServerFS(site)))
	mux.HandleFunc("GET /docs/pages/{file}", own)
	mux.HandleFunc("GET /docs/pages/built/{file}", own)
	mux.HandleFunc("GET /docs/assets/{file}", withCacheControl(http.StripPrefix("/docs/assets/", statigz.FileServer(static.FS))))
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	return nil
}

// withCacheControl lets a browser keep a file for an hour. A missing one is answered as
// every unknown path is.
func withCacheControl(files http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=3600")
		files.ServeHTTP(&notFoundWriter{ResponseWriter: w}, r)
	}
}

// notFoundWriter replaces a file server's plain 404 by ours, and its redirects too:
// every file has one path.
type notFoundWriter struct {
	http.ResponseWriter

	replaced bool
}

func (w *notFoundWriter) WriteHeader(status int) {
	if status != http.StatusNotFound && status != http.StatusMovedPermanently {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.replaced = true
	w.Header().Del("Location")
	w.Header().Set("Cache-Control", "no-store")
	rest.WriteStatus(w.ResponseWriter, http.StatusNotFound)
}

func (w *notFoundWriter) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // a writer passes its base's errors on
}

// Unwrap keeps deadlines within reach of http.ResponseController.
func (w *notFoundWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
