package nodesim_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// call is one request as a gateway saw it.
type call struct {
	At     time.Time
	Path   string
	Status int // what it was answered with

	ID          string   `json:"id"`
	NodeID      string   `json:"node_id"`
	IPAddr      string   `json:"ip_addr"`
	Temperature *float64 `json:"temperature"`
	Humidity    *float64 `json:"humidity"`
}

// gateway is a stand-in that keeps what it hears and answers as told.
type gateway struct {
	mu     sync.Mutex
	heard  []call
	answer func(seen int, c call) int // seen counts earlier calls; nil means success
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{Path: r.URL.Path, At: time.Now(), Status: http.StatusOK}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&c); err != nil {
		c.Status = http.StatusBadRequest
	}
	g.mu.Lock()
	if c.Path == "/api/v1/register" && c.Status == http.StatusOK {
		c.Status = http.StatusCreated
	}
	if g.answer != nil {
		c.Status = g.answer(len(g.heard), c)
	}
	g.heard = append(g.heard, c)
	g.mu.Unlock()
	w.WriteHeader(c.Status)
	_, _ = w.Write([]byte(`{"status":` + strconv.Itoa(c.Status) + `}`))
}

// calls returns what was heard on a path so far.
func (g *gateway) calls(path string) []call {
	g.mu.Lock()
	defer g.mu.Unlock()
	var on []call
	for _, c := range g.heard {
		if c.Path == "/api/v1/"+path {
			on = append(on, c)
		}
	}
	return on
}

// listen serves the gateway over HTTP.
func (g *gateway) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return server.URL
}

// RoundTrip lets nodes reach the gateway without a network, so that time can be
// a test's own.
func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}
