package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"coldaisle.dev/shared/processtest"
)

// loadBalancer is one address in front of several instances of a program, which get
// requests in turn, as on Cloud Run. A request to an instance that is down fails
// with 502: the client must retry.
type loadBalancer struct {
	URL       string
	Instances []*processtest.Process

	server    *httptest.Server
	transport *http.Transport
	next      atomic.Int64
}

// newLoadBalancer listens in front of the instances, which need not run yet.
func newLoadBalancer(instances ...*processtest.Process) (*loadBalancer, error) {
	b := &loadBalancer{Instances: instances, transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}}
	targets := make([]*url.URL, len(instances))
	for i, instance := range instances {
		var err error
		if targets[i], err = url.Parse(instance.URL); err != nil {
			return nil, fmt.Errorf("load balancer: %w", err)
		}
	}
	b.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(targets[int(b.next.Add(1))%len(targets)]) },
		Transport:    b.transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	})
	b.URL = b.server.URL
	return b, nil
}
