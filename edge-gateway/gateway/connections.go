package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"golang.org/x/time/rate"
)

// connections is a listener that bounds the open connections, in all and from one
// address. When there is no room for a new one, it closes an idle one, which has no
// request under way. A node whose connection is closed opens another; a node that is
// refused has no other way.
//
// The address with the most connections loses one, so that devices that open as many as
// they can take them only from each other.
type connections struct {
	net.Listener

	inAll, fromOne int // limits
	warn           func(values ...any)
	logged         rate.Sometimes

	mu      sync.Mutex
	open    map[*connection]struct{}
	peers   map[string]*int // open connections by address
	changes int64           // counts the changes of connections
}

type connection struct {
	net.Conn

	among   *connections
	address string
	peer    *int  // open connections of the address: a search for each of 4,096 would keep every new one waiting
	busy    bool  // a request is under way
	changed int64 // the number of its last change
}

func newConnections(ctx context.Context, listener net.Listener, inAll, fromOne int, log *slog.Logger) *connections {
	return &connections{
		Listener: listener, inAll: inAll, fromOne: fromOne, logged: rate.Sometimes{First: 1, Interval: logInterval},
		warn: func(values ...any) {
			log.WarnContext(ctx, "too many connections, idle ones are closed for new ones", values...)
		},
		open: map[*connection]struct{}{}, peers: map[string]*int{},
	}
}

// Accept implements [net.Listener].
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // http.Server tells a closed listener by identity
		}
		admitted := &connection{Conn: conn, among: l, address: hostOf(conn.RemoteAddr().String())}
		victim, ok := l.admit(admitted)
		if victim != nil {
			_ = victim.Conn.Close()
		}
		if ok {
			return admitted, nil
		}
		_ = conn.Close()
	}
}

// admit makes room for a connection and adds it. The victim is to be closed.
func (l *connections) admit(c *connection) (victim *connection, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.peer = l.peers[c.address]; c.peer == nil {
		c.peer = new(int)
	}
	if len(l.open) >= l.inAll || *c.peer >= l.fromOne {
		victim = l.evictionCandidate(c.peer)
		l.logged.Do(func() {
			closed := cmp.Or(victim, c) // unless an older one can be closed
			l.warn("open", len(l.open), "addresses", len(l.peers), "closed_from", closed.address, "which_has", *closed.peer,
				"newest_from", c.address, "refused", victim == nil)
		})
		if victim == nil {
			return nil, false
		}
		l.remove(victim)
	}
	l.open[c] = struct{}{}
	l.peers[c.address] = c.peer
	*c.peer++
	l.change(c, false)
	return victim, true
}

// evictionCandidate returns the connection to close for a new one from an address, or nil. An
// address that has its share loses its longest idle one. Otherwise the address with the most
// connections loses its longest idle one or, if it would still have more than the new
// connection's address, the one with the oldest request.
func (l *connections) evictionCandidate(own *int) (found *connection) {
	for c := range l.open {
		switch {
		case *own >= l.fromOne && (c.busy || c.peer != own), c.busy && *c.peer <= *own+1:
		case found == nil || c.closesBefore(found):
			found = c
		}
	}
	return found
}

// closesBefore reports whether a connection is closed rather than another.
func (c *connection) closesBefore(other *connection) bool {
	if n, m := *c.peer, *other.peer; n != m {
		return n > m
	}
	if c.busy != other.busy {
		return other.busy
	}
	return c.changed < other.changed
}

// stateChanged is called by [http.Server] when a request on a connection begins or ends.
func (l *connections) stateChanged(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*connection); ok && (state == http.StateActive || state == http.StateIdle) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change(c, state == http.StateActive)
	}
}

// change records what a connection does; the lock is held, as in remove.
func (l *connections) change(c *connection, busy bool) {
	l.changes++
	c.busy, c.changed = busy, l.changes
}

func (l *connections) remove(c *connection) {
	if _, ok := l.open[c]; !ok {
		return
	}
	delete(l.open, c)
	if *c.peer--; *c.peer == 0 {
		delete(l.peers, c.address)
	}
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.among.mu.Lock()
	c.among.remove(c)
	c.among.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // stands for the connection itself
}

// CloseWrite closes the writing side alone. net/http does so after it has refused a
// request, so that the client reads the answer before the connection is reset.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // stands for the connection itself
	}
	return nil
}
