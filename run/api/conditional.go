package api

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"coldaisle.dev/run/api/rest"
)

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
