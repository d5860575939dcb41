package api

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/must"
)

// site is the folder of the pages, with Redoc's bundle or without.
func site(t *testing.T, redoc bool) fs.FS {
	t.Helper()
	folder := fstest.MapFS{}
	for _, name := range []string{"docs.html", "docs.js", "redoc.html", "redoc.js", "unbuilt.html"} {
		folder[name] = &fstest.MapFile{Data: must.Get(os.ReadFile("pages/site/" + name))(t)}
	}
	if redoc {
		folder["built/redoc.standalone.js"] = &fstest.MapFile{Data: []byte("var Redoc = {}")}
		folder["built/redoc.LICENSE.txt"] = &fstest.MapFile{Data: []byte("The MIT License")}
	}
	return folder
}

// TestRedoc asks for Redoc from a binary that has it and from one that does not.
func TestRedoc(t *testing.T) {
	t.Parallel()
	for _, built := range []bool{true, false} {
		router := rest.NewRouter()
		registerDocumentation(router, site(t, built))
		get := func(path string) (int, string) {
			recorder := httptest.NewRecorder()
			router.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return recorder.Code, recorder.Body.String()
		}
		status, page := get("/redoc")
		if status != 200 || strings.Contains(page, "/docs/pages/built/redoc.standalone.js") != built || strings.Contains(page, "make page") == built {
			t.Errorf("%d %s", status, page)
		}
		for _, file := range []string{"redoc.standalone.js", "redoc.LICENSE.txt"} {
			status, _ := get("/docs/pages/built/" + file)
			must.Equal(t, file, built, status == 200)
		}
		for _, path := range []string{"/docs/pages/built", "/docs/pages/built/", "/docs/pages/", "/docs/pages/nothing.js"} {
			if status, body := get(path); status != 404 || body != `{"detail":"Not Found"}` {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	}
}
