package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// State is how a line is.
type State int

// The states of a line.
const (
	Whole   State = iota
	Silent        // bytes vanish and connections hang: a router without its line
	Refused       // connections end and are refused: a machine that is down
)

// Line is a TCP connection to a server that can be cut, slowed down and led
// elsewhere while programs use it.
type Line struct {
	listener net.Listener

	mu      sync.Mutex
	changed *sync.Cond
	target  string
	state   State
	delay   time.Duration
	open    map[net.Conn]bool
	closed  bool
	copies  sync.WaitGroup
}

// NewLine listens on a free port and leads to target, host:port, which may be
// empty until [Line.Lead].
func NewLine(ctx context.Context, target string) (*Line, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	l := &Line{listener: listener, target: target, open: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	l.copies.Go(l.accept)
	return l, nil
}

// Address is where programs connect, host:port.
func (l *Line) Address() string { return l.listener.Addr().String() }

// Lead changes where connections to come lead.
func (l *Line) Lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Set changes the state, for the connections that are there and those to come.
func (l *Line) Set(state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	if state == Refused {
		l.drop()
	}
	l.changed.Broadcast()
}

// Slow delays what passes, in each direction; 0 ends that.
func (l *Line) Slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

// Close ends the line and its connections.
func (l *Line) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.drop()
	l.changed.Broadcast()
	l.mu.Unlock()
	l.copies.Wait()
}

// drop closes all connections; the lock is held.
func (l *Line) drop() {
	for conn := range l.open {
		_ = conn.Close()
	}
	clear(l.open)
}

func (l *Line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		if l.take(near) {
			l.copies.Go(func() { l.join(near) })
		}
	}
}

// join connects one end to the target and copies until either closes.
func (l *Line) join(near net.Conn) {
	defer l.forget(near)
	target, ok := l.passable()
	if !ok {
		return
	}
	far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	defer l.forget(far)
	if !l.take(far) {
		return
	}
	l.copies.Go(func() { l.copy(near, far) })
	l.copy(far, near)
}

// take adds a connection, unless they are refused.
func (l *Line) take(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.state == Refused {
		_ = conn.Close()
		return false
	}
	l.open[conn] = true
	return true
}

func (l *Line) forget(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
}

// passable waits while the line is silent; it returns where the line leads, and
// false when it has ended.
func (l *Line) passable() (target string, ok bool) {
	l.mu.Lock()
	delay := l.delay
	l.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.state == Silent && !l.closed {
		l.changed.Wait()
	}
	return l.target, !l.closed
}

func (l *Line) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if _, ok := l.passable(); !ok {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
