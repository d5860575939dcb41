package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"coldaisle.dev/shared/httpserver"
)

// LoadBalancer is one address in front of several instances of a program, which get
// requests in turn, as on Cloud Run. A request to an instance that is down fails
// with 502: the client must retry.
type LoadBalancer struct {
	URL       string
	Instances []*Process

	transport *http.Transport
	next      atomic.Int64
	end       context.CancelFunc
	ended     chan error
}

// newLoadBalancer listens in front of the instances, which need not run yet.
func newLoadBalancer(ctx context.Context, log *slog.Logger, instances ...*Process) (*LoadBalancer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("load balancer: %w", err)
	}
	b := &LoadBalancer{URL: "http://" + listener.Addr().String(), Instances: instances, ended: make(chan error, 1)}
	targets := make([]*url.URL, len(instances))
	for i, instance := range instances {
		if targets[i], err = url.Parse(instance.URL()); err != nil {
			return nil, fmt.Errorf("load balancer: %w", err)
		}
	}
	b.transport = &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			index := int(b.next.Add(1)) % len(targets)
			r.SetURL(targets[index])
		},
		Transport: b.transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	ctx, b.end = context.WithCancel(context.WithoutCancel(ctx))
	limits := httpserver.Config{ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	go func() { b.ended <- httpserver.Run(ctx, listener, proxy, limits, log, slog.LevelDebug) }()
	return b, nil
}

// CloseIdleConnections closes idle connections to the instances.
func (b *LoadBalancer) CloseIdleConnections() { b.transport.CloseIdleConnections() }

func (b *LoadBalancer) close() error {
	b.end()
	return <-b.ended
}
