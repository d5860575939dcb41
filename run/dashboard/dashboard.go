// Package dashboard serves the operators' web page, which `npm run build`
// leaves in site/built and the compiler embeds. Without that folder the binary still
// builds, and shows a page that says how to build the dashboard.
//
// The servers combine it with the API by WithPage: it answers the page and its files, the
// API every other path, so that both have one origin.
package dashboard

import (
	"bytes"
	"embed"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
)

// files holds unbuilt.html always, and built/ after `npm run build`.
//
//go:embed all:site
var files embed.FS

// contentSecurityPolicy lets the page load its own files and talk to its own origin, and
// nothing else: no inline script or style, no frame.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler answers the page's own paths and files. Every path that is not a file gets the
// page, whose router shows it.
func Handler() http.Handler {
	built, err := fs.Sub(files, "site/built")
	if err == nil {
		_, err = fs.Stat(built, "index.html")
	}
	if err != nil {
		return securityHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serveFile(w, r, files, "site/unbuilt.html")
		}))
	}
	return serve(built)
}

// serve answers with the page and its files from a build.
func serve(built fs.FS) http.Handler {
	return securityHeaders(gzhttp.GzipHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
		if info, err := fs.Stat(built, name); err == nil && !info.IsDir() {
			if strings.HasPrefix(name, assets) {
				// The name of such a file has a hash of its content.
				w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			}
			serveFile(w, r, built, name)
			return
		}
		if strings.HasPrefix(name+"/", assets) {
			http.NotFound(w, r)
			return
		}
		// A cached page would name assets that are gone after a release. With no-cache
		// a browser still shows the cached one on the way back.
		w.Header().Set("Cache-Control", "no-store")
		serveFile(w, r, built, "index.html")
	})))
}

// WithPage answers GET and HEAD of the page's paths and files, and leaves all else to the
// API. For a path of neither a browser gets the page, which says so, with status 404; a
// program gets the API's answer.
func WithPage(api http.Handler) http.Handler {
	page := Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case reads && isPagePath(r.URL.Path):
			page.ServeHTTP(w, r)
		case reads && strings.Contains(r.Header.Get("Accept"), "text/html") && !isAPIPath(r.URL.Path):
			page.ServeHTTP(statusWriter{w, http.StatusNotFound}, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// isAPIPath reports whether a path is one of the API's, or could be.
func isAPIPath(requested string) bool {
	return strings.HasPrefix(requested, "/api/") || strings.HasPrefix(requested, "/docs/pages/") || strings.HasPrefix(requested, "/docs/assets/") ||
		slices.Contains([]string{"/docs", "/health", "/openapi.json", "/redoc"}, requested)
}

// statusWriter answers with a status instead of 200.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s statusWriter) WriteHeader(int) { s.ResponseWriter.WriteHeader(s.status) }

// assets is the folder of files named by their content.
const assets = "assets/"

// isPagePath reports whether a path is one of the page's: the routes in src/app.tsx and
// src/setup.ts, whose new sections are below /setup/. A path with empty or dotted elements
// is not.
func isPagePath(requested string) bool {
	if clean := path.Clean(requested); requested != clean && (clean == "/" || requested != clean+"/") {
		return false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(requested, "/"), "/")
	switch first {
	case "", "rooms", "sensors", "incidents", "reports", "setup", "wall", "join", // src/app.tsx
		"rules", "maintenance", "gateways", "persons", "keys", "watches", "drills", "records", // src/setup.ts
		"predictions", "audit", "account", "settings", // src/setup.ts
		"alerts", "thresholds", "report", // former names
		"assets", "icon.svg", "icon-open.svg", "icon-192.png", "icon-512.png", "manifest.json":
		return true
	default:
		return false
	}
}

func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentSecurityPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// serveFile answers one embedded file. Embedded files have no time of change.
func serveFile(w http.ResponseWriter, r *http.Request, from fs.FS, name string) {
	content, err := fs.ReadFile(from, name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}
