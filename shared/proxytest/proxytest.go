// Package proxytest is a TCP proxy between two programs under test: the gateway's
// uplink in its own tests, and every connection of the soak's cluster.
//
// Shopify's toxiproxy will not do: its timeout toxic drops the bytes that come while a
// connection hangs, but a network that recovers delivers them.
package proxytest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Mode says how a proxy treats connections.
type Mode int

// The modes of a proxy.
const (
	Forward Mode = iota
	Stall        // connections stay open and no bytes pass: a router without its uplink
	Refuse       // connections are closed and refused: a machine that is down
)

// Proxy is a TCP proxy that can stall, refuse or delay connections while programs use it.
type Proxy struct {
	listener net.Listener
	target   string
	latency  atomic.Int64
	copies   sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	mode    Mode
	open    context.Context // of connections; it ends when they are refused
	refuse  context.CancelFunc
}

// New listens on a free port and forwards to target, host:port.
func New(ctx context.Context, target string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: listener, target: target}
	p.changed = sync.NewCond(&p.mu)
	p.open, p.refuse = context.WithCancel(context.WithoutCancel(ctx))
	p.copies.Go(p.accept)
	return p, nil
}

// Address is where programs connect, host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// SetMode changes the mode, for open and future connections.
func (p *Proxy) SetMode(mode Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case mode == Refuse:
		p.refuse()
	case p.mode == Refuse:
		p.open, p.refuse = context.WithCancel(context.Background())
	}
	p.mode = mode
	p.changed.Broadcast()
}

// SetLatency delays bytes in each direction; 0 ends the delay.
func (p *Proxy) SetLatency(latency time.Duration) { p.latency.Store(int64(latency)) }

// Close closes the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.SetMode(Refuse)
	p.copies.Wait()
}

func (p *Proxy) accept() {
	for {
		downstream, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		open := p.open
		p.mu.Unlock()
		p.copies.Go(func() { p.forward(open, downstream) })
	}
}

// forward connects downstream to the target and copies until either side closes, or the
// context ends.
func (p *Proxy) forward(ctx context.Context, downstream net.Conn) {
	defer func() { _ = downstream.Close() }()
	if !p.waitOpen(ctx) {
		return
	}
	upstream, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _, _ = downstream.Close(), upstream.Close() })()
	p.copies.Go(func() { p.copy(ctx, downstream, upstream) })
	p.copy(ctx, upstream, downstream)
}

// waitOpen waits for the latency and while the proxy stalls. It returns false when the
// context has ended.
func (p *Proxy) waitOpen(ctx context.Context) bool {
	if latency := time.Duration(p.latency.Load()); latency > 0 {
		<-time.After(latency)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == Stall && ctx.Err() == nil {
		p.changed.Wait()
	}
	return ctx.Err() == nil
}

func (p *Proxy) copy(ctx context.Context, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.waitOpen(ctx) {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
