package main

import (
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
	*httptest.Server

	Instances []*processtest.Process
	transport *http.Transport
}

// newLoadBalancer listens in front of the instances, which need not run yet.
func newLoadBalancer(instances []*processtest.Process) *loadBalancer {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}
	var next atomic.Int64
	return &loadBalancer{httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target, _ := url.Parse(instances[int(next.Add(1))%len(instances)].URL) // always valid
			r.SetURL(target)
		},
		Transport:    transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}), instances, transport}
}
