package gateway

import (
	"container/list"
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
	open    int
	peers   map[string]*peer // by address
	changes int64            // counts the changes of connections
}

// peer is an address with open connections: idle ones, and those with a request under
// way. Each list begins with the connection that entered it first.
type peer struct{ idle, busy list.List }

func (p *peer) count() int { return p.idle.Len() + p.busy.Len() }

type connection struct {
	net.Conn

	among   *connections
	address string
	from    *peer         // the address that it is from
	element *list.Element // in a list of the peer; nil unless the connection is open
	busy    bool          // a request is under way
	changed int64         // the number of its last change
}

func newConnections(ctx context.Context, listener net.Listener, inAll, fromOne int, log *slog.Logger) *connections {
	return &connections{
		Listener: listener, inAll: inAll, fromOne: fromOne, logged: rate.Sometimes{First: 1, Interval: logInterval},
		warn: func(values ...any) {
			log.WarnContext(ctx, "too many connections, idle ones are closed for new ones", values...)
		},
		peers: map[string]*peer{},
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
	own := l.peers[c.address]
	if own == nil {
		own = &peer{}
	}
	c.from = own
	if l.open >= l.inAll || own.count() >= l.fromOne {
		victim = l.evictionCandidate(own)
		l.logged.Do(func() {
			closed := c // unless an older one can be closed
			if victim != nil {
				closed = victim
			}
			l.warn("open", l.open, "addresses", len(l.peers), "closed_from", closed.address, "which_has", closed.from.count(),
				"newest_from", c.address, "refused", victim == nil)
		})
		if victim == nil {
			return nil, false
		}
		l.remove(victim)
	}
	l.open++
	l.peers[c.address] = own
	l.put(c, false)
	return victim, true
}

// evictionCandidate returns the connection to close for a new one from an address, or nil. An
// address that has its share loses an idle one of its own. Otherwise each address offers the
// one that has been idle for the longest or, if none is idle and it would still have more than
// the new connection's address, the one with the oldest request. Only the first connection of
// a list is looked at, because every new connection waits for this.
func (l *connections) evictionCandidate(own *peer) (found *connection) {
	if own.count() >= l.fromOne {
		return first(&own.idle)
	}
	for _, p := range l.peers {
		candidate := first(&p.idle)
		if candidate == nil && p.count() > own.count()+1 {
			candidate = first(&p.busy)
		}
		if candidate != nil && (found == nil || candidate.closesBefore(found)) {
			found = candidate
		}
	}
	return found
}

// closesBefore reports whether a connection is closed rather than one of another address.
func (c *connection) closesBefore(other *connection) bool {
	if n, m := c.from.count(), other.from.count(); n != m {
		return n > m
	}
	if c.busy != other.busy {
		return other.busy
	}
	return c.changed < other.changed
}

func first(of *list.List) *connection {
	if e := of.Front(); e != nil {
		c, _ := e.Value.(*connection) // the lists hold nothing else
		return c
	}
	return nil
}

// stateChanged is called by [http.Server] when a request on a connection begins or ends.
func (l *connections) stateChanged(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*connection)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.element == nil {
		return // it has been closed
	}
	c.leave()
	l.put(c, state == http.StateActive)
}

// put adds a connection to a list of its peer; the lock is held, as in the functions below.
func (l *connections) put(c *connection, busy bool) {
	to := &c.from.idle
	if busy {
		to = &c.from.busy
	}
	l.changes++
	c.element, c.busy, c.changed = to.PushBack(c), busy, l.changes
}

func (c *connection) leave() {
	c.from.idle.Remove(c.element) // without effect on the other list
	c.from.busy.Remove(c.element)
	c.element = nil
}

func (l *connections) remove(c *connection) {
	if c.element == nil {
		return
	}
	c.leave()
	l.open--
	if c.from.count() == 0 {
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
