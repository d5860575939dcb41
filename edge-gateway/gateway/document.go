package gateway

import (
	_ "embed"
	"net/http"
)

// document is the OpenAPI document. It is written by hand, as the handlers are
// plain net/http; the tests hold every answer and every route against it.
//
//go:embed openapi.json
var document []byte

// openapi is for whoever writes a node's program.
func (g *Gateway) openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // a client that has gone needs no answer
}
