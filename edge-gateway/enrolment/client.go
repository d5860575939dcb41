package enrolment

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/api"
)

// The operations of the API.
const (
	enrolPath  = "/api/v1/gateways/enrol"
	statusPath = "/api/v1/gateways/status"
)

// timeout is how long the API may take to answer. It bounds the error of the time in a
// status reply.
const timeout = 15 * time.Second

// CheckAPI validates the address of an API. Without TLS anybody on the path could set the
// gateway's clock.
func CheckAPI(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is not the address of an API: that begins with https://", address)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%q must begin with https:// unless it is on this machine", address)
	}
	return nil
}

func post(ctx context.Context, client *http.Client, address, path string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := api.Call(ctx, client, http.MethodPost, strings.TrimRight(address, "/")+path, nil, body, reply); err != nil {
		return fmt.Errorf("ask the API: %w", err)
	}
	return nil
}

// newClient returns a client that keeps no connection from one minute to the next, and follows
// no redirect, because a signed status is for the configured API only.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
