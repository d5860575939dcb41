package main

import (
	"context"
	"net"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/shared/pubsubtest"
)

const (
	testProject = "site"
	testTopic   = "data"
)

// startPubSub runs a Pub/Sub with the topic.
func startPubSub(tb testing.TB) *pstest.Server {
	tb.Helper()
	server := pubsubtest.Start(tb)
	pubsubtest.Topics(tb, server, testProject, testTopic)
	return server
}

// cut is how an uplink fails.
type cut int

const (
	whole   cut = iota
	silent      // bytes vanish, connections hang: a router without its line
	refused     // connections end and are refused: a router that says so
)

// uplink is the line to a server, which a test can cut.
type uplink struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond
	state   cut
	open    map[net.Conn]bool
	closed  bool
	copies  sync.WaitGroup
}

func newUplink(tb testing.TB, target string) *uplink {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	u := &uplink{listener: listener, target: target, open: map[net.Conn]bool{}}
	u.changed = sync.NewCond(&u.mu)
	u.copies.Go(u.accept)
	tb.Cleanup(u.close)
	return u
}

func (u *uplink) address() string { return u.listener.Addr().String() }

// set changes the state of the line for connections that are there and to come.
func (u *uplink) set(state cut) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.state = state
	if state == refused {
		u.drop()
	}
	u.changed.Broadcast()
}

func (u *uplink) close() {
	_ = u.listener.Close()
	u.mu.Lock()
	u.closed = true
	u.drop()
	u.changed.Broadcast()
	u.mu.Unlock()
	u.copies.Wait()
}

// drop closes all connections; the lock is held.
func (u *uplink) drop() {
	for conn := range u.open {
		_ = conn.Close()
	}
	clear(u.open)
}

func (u *uplink) accept() {
	for {
		near, err := u.listener.Accept()
		if err != nil {
			return
		}
		if !u.take(near) {
			continue
		}
		u.copies.Go(func() {
			if !u.passable() {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", u.target)
			if err != nil || !u.take(far) {
				_ = near.Close()
				return
			}
			u.copies.Go(func() { u.copy(near, far) })
			u.copy(far, near)
		})
	}
}

// take adds a connection unless they are refused.
func (u *uplink) take(conn net.Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.state == refused {
		_ = conn.Close()
		return false
	}
	u.open[conn] = true
	return true
}

// passable waits while the line is silent and says whether it goes on.
func (u *uplink) passable() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.state == silent && !u.closed {
		u.changed.Wait()
	}
	return !u.closed
}

func (u *uplink) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !u.passable() {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
