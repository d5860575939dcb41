package api

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"

	"github.com/swaggest/swgui/v5/static"
	"github.com/vearutop/statigz"

	"coldaisle.dev/run/api/rest"
)

// documentation holds the two documentation pages and their scripts, and in built Redoc with
// its licences, which `make page` fetches. Swagger UI comes embedded in swaggest/swgui.
//
//go:embed all:pages/site
var documentation embed.FS

// contentSecurityPolicy lets a documentation page load only from this host. Both renderers
// write style attributes and draw inline images; Redoc searches in a worker that it makes
// from a blob.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
	"font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// registerDocumentation adds the documentation: people read /docs and /redoc, tools read
// /openapi.json. None needs a token, and none makes a browser call another host. If Redoc is
// not built in, /redoc says how to build it.
func registerDocumentation(mux *rest.Router, site fs.FS) {
	redoc := "redoc.html"
	if _, err := fs.Stat(site, "built/redoc.standalone.js"); err != nil {
		redoc = "unbuilt.html"
	}
	for path, name := range map[string]string{"/docs": "docs.html", "/redoc": redoc} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", contentSecurityPolicy)
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.ServeFileFS(w, r, site, name)
		})
	}
	assets := statigz.FileServer(static.FS, statigz.OnNotFound(notFound))
	mux.HandleFunc("GET /docs/pages/{file}", serveFile(site))
	mux.HandleFunc("GET /docs/pages/built/{file}", serveFile(site))
	mux.HandleFunc("GET /docs/assets/{file}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", cacheControl)
		http.StripPrefix("/docs/assets/", assets).ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}

// cacheControl lets a browser keep a file for an hour.
const cacheControl = "public, max-age=3600"

// serveFile serves the files of the site below /docs/pages/.
func serveFile(site fs.FS) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/docs/pages/")
		if info, err := fs.Stat(site, name); err != nil || info.IsDir() {
			notFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", cacheControl)
		http.ServeFileFS(w, r, site, name) //nolint:gosec // fs.FS has nothing outside of itself
	}
}

// notFound answers a missing file like any unknown path.
func notFound(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	rest.WriteStatus(w, http.StatusNotFound)
}
