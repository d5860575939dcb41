package nodesim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
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

type registration struct {
	NodeID string `json:"node_id"`
	IPAddr string `json:"ip_addr"`
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
	body, err := json.Marshal(value)
	if err != nil {
		return unreachable, fmt.Errorf("encode for %s: %w", path, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return unreachable, fmt.Errorf("request to %s%s: %w", base, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return unreachable, fmt.Errorf("post %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	// A connection is reused only when its answer was read to the end.
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return unreachable, fmt.Errorf("answer of %s: %w", path, err)
	}
	switch status := response.StatusCode; {
	case !json.Valid(answer):
		return unreachable, fmt.Errorf("post %s: %d: another machine than a gateway answers: no JSON", path, status)
	case status/100 == 2:
		return accepted, nil
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return retryLater, fmt.Errorf("post %s: status %d", path, status)
	default:
		return rejected, fmt.Errorf("post %s: status %d", path, status)
	}
}
