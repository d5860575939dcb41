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

// patience is how long the API may take for an answer. The time that a status reply
// tells is known within as much.
const patience = 15 * time.Second

// maxReply bounds what is read, in bytes.
const maxReply = 1 << 20

// CheckAPI judges the address of an API. Without TLS anybody on the way could tell the
// gateway what time it is.
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

// statusError is an answer other than 200.
type statusError struct {
	status int
	detail string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API answered %d: %s", e.status, e.detail)
}

// post sends a request as JSON and reads the reply.
func post(ctx context.Context, client *http.Client, address string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(encoded))
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
		var fault struct {
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(content, &fault) // what a proxy says is no JSON
		return &statusError{response.StatusCode, cmp.Or(fault.Detail, strings.TrimSpace(http.StatusText(response.StatusCode)))}
	}
	if err := json.Unmarshal(content, reply); err != nil {
		return fmt.Errorf("what answers at %s is not the API: %w", address, err)
	}
	return nil
}

// newClient keeps no connection from one minute to the next, and follows nobody: a
// signed status is for the API that was named.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func at(api, path string) string { return strings.TrimRight(api, "/") + path }
