package nodesim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The paths of the gateway's interface.
const (
	registerPath  = "/api/v1/register"
	messagePath   = "/api/v1/message"
	heartbeatPath = "/api/v1/heartbeat"
)

// requestTimeout is how long a node waits for an answer, in wall time.
const requestTimeout = 10 * time.Second

type registration struct {
	NodeID string `json:"node_id"`
	IPAddr string `json:"ip_addr"`
}

type message struct {
	ID          string  `json:"id"`
	NodeID      string  `json:"node_id"`
	Temperature float64 `json:"temperature"`
	Humidity    float64 `json:"humidity"`
	Age         float64 `json:"age_s,omitzero"` // for how many seconds the node has kept it

	at time.Time // when it was measured
}

type heartbeat struct {
	NodeID string `json:"node_id"`
}

// outcome says what a node does after a request.
type outcome int

const (
	accepted    outcome = iota // 2xx
	rejected                   // sending it again cannot help
	retryLater                 // 5xx, 429, 408: send it again
	unreachable                // no answer at all
)

func outcomeOf(status int) outcome {
	switch {
	case status >= 200 && status < 300:
		return accepted
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return retryLater
	default:
		return rejected
	}
}

// client calls a gateway over connections that it reuses.
type client struct {
	http    *http.Client
	timeout time.Duration
}

// newClient returns a client for so many requests at a time. Only tests give it a
// transport.
func newClient(parallel int, transport http.RoundTripper) *client {
	if transport == nil {
		transport = &http.Transport{
			MaxIdleConns:        parallel,
			MaxIdleConnsPerHost: parallel,
			IdleConnTimeout:     2 * time.Minute,
			DisableCompression:  true,
		}
	}
	calls := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &client{http: calls, timeout: requestTimeout}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// post sends v as JSON. The error says why there was no answer.
func (c *client) post(ctx context.Context, base, path string, v any) (int, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode for %s: %w", path, err)
	}
	return c.postBytes(ctx, base, path, body)
}

func (c *client) postBytes(ctx context.Context, base, path string, body []byte) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("request to %s%s: %w", base, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("post %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	// A connection is reused only when its answer was read to the end.
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return 0, fmt.Errorf("answer of %s: %w", path, err)
	}
	if !json.Valid(answer) {
		return 0, fmt.Errorf("post %s: %d %w", path, response.StatusCode, errElsewhere)
	}
	return response.StatusCode, nil
}

// Resolve finds the gateway's base address, such as http://192.168.1.20:8080.
// A node asks at its start and again when the address no longer answers.
type Resolve func(ctx context.Context) (string, error)

var errElsewhere = errors.New("by another machine than a gateway: no JSON")

var errGateway = errors.New("gateway must be an address such as http://192.168.1.20:8080")

// FixedAddress resolves to an address that is known beforehand.
func FixedAddress(address string) (Resolve, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("%w: got %q", errGateway, address)
	}
	trimmed := strings.TrimRight(address, "/")
	return func(context.Context) (string, error) { return trimmed, nil }, nil
}

// wait waits for d of wall time. When the context ends sooner, it returns the
// context's error.
func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() //nolint:wrapcheck // callers tell a cancelled context by identity
}
