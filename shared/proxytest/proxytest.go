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

	mu      sync.Mutex
	changed *sync.Cond
	mode    Mode
	latency time.Duration
	open    map[net.Conn]bool
	closed  bool
	copies  sync.WaitGroup
}

// New listens on a free port and forwards to target, host:port.
func New(ctx context.Context, target string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: listener, target: target, open: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.copies.Go(p.accept)
	return p, nil
}

// Address is where programs connect, host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// SetMode changes the mode, for open and future connections.
func (p *Proxy) SetMode(mode Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	if mode == Refuse {
		p.closeConnections()
	}
	p.changed.Broadcast()
}

// SetLatency delays bytes in each direction; 0 ends the delay.
func (p *Proxy) SetLatency(latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = latency
}

// Close closes the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.closeConnections()
	p.changed.Broadcast()
	p.mu.Unlock()
	p.copies.Wait()
}

// closeConnections closes all connections; the caller holds the lock.
func (p *Proxy) closeConnections() {
	for conn := range p.open {
		_ = conn.Close()
	}
	clear(p.open)
}

func (p *Proxy) accept() {
	for {
		downstream, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.track(downstream) {
			p.copies.Go(func() { p.forward(downstream) })
		}
	}
}

// forward connects downstream to the target and copies until either side closes.
func (p *Proxy) forward(downstream net.Conn) {
	defer p.untrack(downstream)
	if !p.waitOpen() {
		return
	}
	upstream, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	defer p.untrack(upstream)
	if !p.track(upstream) {
		return
	}
	p.copies.Go(func() { p.copy(downstream, upstream) })
	p.copy(upstream, downstream)
}

// track adds a connection, or closes it when connections are refused.
func (p *Proxy) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == Refuse {
		_ = conn.Close()
		return false
	}
	p.open[conn] = true
	return true
}

func (p *Proxy) untrack(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// waitOpen waits for the latency and while the proxy stalls. It returns false when the
// proxy is closed.
func (p *Proxy) waitOpen() bool {
	p.mu.Lock()
	latency := p.latency
	p.mu.Unlock()
	if latency > 0 {
		<-time.After(latency)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == Stall && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}

func (p *Proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.waitOpen() {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
