package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// newTimedSite returns a gateway on the time of a synctest bubble.
func newTimedSite(config gateway.Config) (*gateway.Gateway, *record) {
	published := &record{}
	return gateway.New(config, published, noOutbox(errors.New("no disk")), time.Now, logging.Discard()), published
}

func post(t *testing.T, handler http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	return serve(t, handler, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
}

// TestFastNode sends one after the other, faster than its rate: it is slowed
// down to the rate and loses nothing. Contract 8.11.
func TestFastNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site, published := newTimedSite(gateway.Config{NodeRate: 50, NodeBurst: 100})
		began := time.Now()
		for i := range 300 {
			must.Equal(t, fmt.Sprintf("answer to reading %d", i), http.StatusOK, post(t, site, "/api/v1/message", string(measured(1, i))).Code)
		}
		must.Equal(t, "readings published", 300, len(published.all()))
		must.Equal(t, "200 readings beyond the burst took", 4*time.Second, time.Since(began))
	})
}

// TestFlood has one node send as much as it can over many connections, and
// another one send at its own pace.
func TestFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site, published := newTimedSite(gateway.Config{NodeRate: 50, NodeBurst: 100})
		const connections, duration = 500, 10 * time.Second
		began := time.Now()
		var flooding sync.WaitGroup
		var mu sync.Mutex
		answers := map[int]int{}
		for c := range connections {
			flooding.Go(func() {
				for i := 0; time.Since(began) < duration; i++ {
					answer := post(t, site, "/api/v1/message", string(measured(1, c*100000+i)))
					if answer.Code == http.StatusTooManyRequests && (answer.Header().Get("Retry-After") != "1" || answer.Body.String() != `{"error":"Too many requests"}`+"\n") {
						t.Errorf("refused with %v %s", answer.Header(), answer.Body)
					}
					mu.Lock()
					answers[answer.Code]++
					mu.Unlock()
				}
			})
		}
		for i := range 10 {
			time.Sleep(time.Second)
			sent := time.Now()
			if answer := post(t, site, "/api/v1/message", string(measured(2, i))); answer.Code != http.StatusOK || time.Since(sent) > 0 {
				t.Errorf("the quiet node was answered %d after %s", answer.Code, time.Since(sent))
			}
			must.Equal(t, "another node's heartbeat was answered", http.StatusOK, post(t, site, "/api/v1/heartbeat", `{"node_id":"node-0003"}`).Code)
		}
		flooding.Wait()
		if got := answers[http.StatusOK]; got < 550 || got > 700 {
			t.Errorf("%d readings of the flood were taken in 10 s, want about 100 + 10 × 50", got)
		}
		if got := answers[http.StatusTooManyRequests]; got > 11*connections {
			t.Errorf("%d requests were refused: a connection can flood faster than one request a second", got)
		}
		must.Equal(t, "readings published", answers[http.StatusOK]+10, len(published.all()))
	})
}

func TestTableOfNodesIsBounded(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{MaxNodes: 3, NodeRate: 1000, NodeBurst: 1000}, nil)
	for i := range 10 {
		must.Equal(t, fmt.Sprintf("node %d was answered", i), 200, s.message(string(measured(i, 1))))
	}
	must.Contain(t, "the list", s.get("/api/v1/nodes"), `"total":3`)
	if got := s.published.last(); got.Reading.NodeID != "node-0009" || got.Recent.Len() != 0 {
		t.Errorf("a node beyond the bound was published as %v", got)
	}
	// Nodes that have gone make room.
	s.pass(6 * time.Minute)
	s.message(string(measured(0, 2)))
	s.message(string(measured(20, 1)))
	s.message(string(measured(20, 2)))
	must.Equal(t, "the window of a node that came when others had gone holds", 1, s.published.last().Recent.Len())
}

// TestSpoofedNode has somebody send as much as it can under the id of a node, and under
// ids that it invents, more than the gateway remembers: the node notices nothing.
// Contract 8.11.
func TestSpoofedNode(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]func(c, i int) int{
		"under its id":       func(int, int) int { return 2 },
		"under invented ids": func(c, i int) int { return 1000 + c*1000 + i },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				site, published := newTimedSite(gateway.Config{NodeRate: 50, NodeBurst: 100, AddressRate: 60, MaxNodes: 50})
				send := func(address string, node, i int) (status int) {
					request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/message", strings.NewReader(string(measured(node, i))))
					request.RemoteAddr = address
					return serve(t, site, request).Code
				}
				began := time.Now()
				var flooding sync.WaitGroup
				for c := range 200 {
					flooding.Go(func() {
						for i := 0; time.Since(began) < 10*time.Second; i++ {
							send("192.168.7.66:4000", id(c, i), c*1000+i)
						}
					})
				}
				for i := range 10 {
					time.Sleep(time.Second)
					sent := time.Now()
					if status := send("192.168.7.9:4000", 2, 900_000+i); status != http.StatusOK || time.Since(sent) > 0 {
						t.Errorf("the node was answered %d after %s", status, time.Since(sent))
					}
				}
				flooding.Wait()
				if all := published.all(); len(all) > 121+11*60+10 {
					t.Errorf("%d readings were published in 10 s", len(all))
				}
			})
		})
	}
}
