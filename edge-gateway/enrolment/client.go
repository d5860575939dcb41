package enrolment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The operations of the API.
const (
	enrolPath  = "/api/v1/gateways/enrol"
	statusPath = "/api/v1/gateways/status"
)

// timeout is how long the API may take for an answer. It bounds the error of the time
// in a status reply.
const timeout = 15 * time.Second

// maxReply bounds what is read, in bytes.
const maxReply = 1 << 20

// CheckAPI validates the address of an API. Without TLS anybody on the path could set the
// gateway's clock.
func CheckAPI(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is no address of an API: it begins with https://", address)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%q must begin with https:// unless it is on this machine", address)
	}
	return nil
}

// post sends a request to an API as JSON and reads the reply.
func post(ctx context.Context, client *http.Client, api, path string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(api, "/")+path, bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}
	if response.StatusCode/100 != 2 {
		var answer struct {
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(content, &answer) // a proxy's page is not JSON
		return fmt.Errorf("the API answered %d: %s", response.StatusCode, cmp.Or(answer.Detail, http.StatusText(response.StatusCode)))
	}
	if err := json.Unmarshal(content, reply); err != nil {
		return fmt.Errorf("what answers at %s is not the API: %w", api, err)
	}
	return nil
}

// newClient returns a client that keeps no connection from one minute to the next and
// follows no redirect: a signed status is for the configured API alone.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
