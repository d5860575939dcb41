package nodesim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"coldaisle.dev/edge-gateway/api"
)

// The paths of the gateway's API.
const (
	registerPath  = "/api/v1/register"
	messagePath   = "/api/v1/message"
	heartbeatPath = "/api/v1/heartbeat"
	readingsPath  = "/api/v1/readings" // of sources, which are no nodes
)

// requestTimeout is how long a node waits for an answer, in wall time.
const requestTimeout = 10 * time.Second

// registration is what a node registers with: an address in a network that does not exist.
func registration(id string, network, number int) map[string]string {
	return map[string]string{"node_id": id, "ip_addr": fmt.Sprintf("10.%d.%d.%d", network, number/250%256, number%250+1)}
}

type message struct {
	ID          string   `json:"id"`
	NodeID      string   `json:"node_id"`
	Temperature float64  `json:"temperature"`
	Humidity    *float64 `json:"humidity,omitempty"` // nil: a host has none
	Age         float64  `json:"age_s,omitzero"`     // seconds since the measurement

	at time.Time // of the measurement
}

// path is where the gateway takes the message: only a reading of a batch may lack humidity.
func (m message) path() string {
	if m.Humidity == nil {
		return readingsPath
	}
	return messagePath
}

// outcome is the result of a request, as a node acts on it.
type outcome int

const (
	accepted    outcome = iota // 2xx
	rejected                   // sending it again cannot help
	retryLater                 // 5xx, 429, 408: send it again
	unreachable                // no answer, or not a gateway's
)

// newClient returns a client that keeps the connections of so many parallel requests. A given
// transport replaces its own.
func newClient(parallel int, transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{MaxIdleConnsPerHost: parallel, IdleConnTimeout: 2 * time.Minute, DisableCompression: true}
	}
	return &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post sends a value as JSON. The error says why it is not accepted.
func post(ctx context.Context, client *http.Client, base, path string, value any) (outcome, error) {
	_, err := api.Call(ctx, client, http.MethodPost, base+path, nil, value, new(json.RawMessage)) // a page is no answer
	answered, ok := errors.AsType[*api.StatusError](err)
	switch {
	case err == nil:
		return accepted, nil
	case !ok, answered.Page:
		return unreachable, err
	case answered.Status == http.StatusBadRequest, answered.Status == http.StatusRequestEntityTooLarge:
		return rejected, err
	case answered.Status >= 500, answered.Status == http.StatusTooManyRequests, answered.Status == http.StatusRequestTimeout:
		return retryLater, err
	default: // another machine has the address, perhaps
		return unreachable, err
	}
}
