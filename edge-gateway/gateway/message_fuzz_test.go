package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// FuzzMessage sends any body to any path: the answer is one of the document's and no fault of the gateway's,
// what is published is valid, and the list of nodes stays readable.
func FuzzMessage(f *testing.F) {
	f.Add("/api/v1/register", `{"node_id":"n1","ip_addr":"10.0.0.1"}`)
	f.Add("/api/v1/register", `{"node_id":"n1","ip_addr":"fe80::1%eth0"}`)
	f.Add("/api/v1/heartbeat", `{"node_id":"n1"}`)
	f.Add("/api/v1/message", `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`)
	f.Add("/api/v1/message", `{"message_id":"1","ID":"2","node_id":"n1","temperature":-0,"humidity":1e2}`)
	f.Add("/api/v1/message", `{"id":"a1","node_id":"n1","temperature":" 2.4E+1","humidity":"1e999","age_s":"-"}`)
	f.Add("/api/v1/message", `{"id":"a1","node_id":"n1","temperature":"24.5","humidity":"-0.0","age_s":"3600"}`)
	f.Add("/api/v1/../v1//nodes", `[`)
	f.Fuzz(func(t *testing.T, path, body string) {
		target, err := url.Parse("http://gateway" + path)
		if err != nil || target.Host != "gateway" || !strings.HasPrefix(target.Path, "/") || target.Path == "/metrics" {
			return // no request that HTTP could carry, or not JSON by design
		}
		published := &record{}
		site := gateway.New(gateway.Config{}, published, noOutbox(errors.New("no disk")), time.Now, logging.Discard())
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		request.URL = target
		recorder := serve(t, site, request)
		var answer struct{ Status string }
		must.Do(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
		if recorder.Code >= http.StatusTooManyRequests {
			t.Errorf("answered %d %s", recorder.Code, recorder.Body)
		}
		must.Equal(t, fmt.Sprintf("published %v", published.data), answer.Status == "published", len(published.data) == 1)
		for _, data := range published.data {
			must.Do(t, data.Reading.Validate())
		}
		list := serve(t, site, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/nodes", nil))
		var nodes struct {
			Nodes []gateway.NodeInfo `json:"nodes"`
			Total int                `json:"total"`
		}
		if err := json.Unmarshal(list.Body.Bytes(), &nodes); err != nil || nodes.Total != len(nodes.Nodes) {
			t.Errorf("the list is %s", list.Body)
		}
	})
}
