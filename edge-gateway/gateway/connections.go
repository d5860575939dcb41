package gateway

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"coldaisle.dev/shared/httpserver"
)

// connections is a listener that bounds how many connections are open, in all
// and from one address. When there is no room for a new one, an idle one makes
// it: one on which no request is under way. Nodes open a connection anew when
// theirs is closed; a newcomer that is not let in has no other way.
//
// In need of room the address with the most connections gives one up, so that
// some devices that hold as many as they can take them from each other and from
// nobody else.
type connections struct {
	net.Listener

	inAll, fromOne int // limits
	warn           func(values ...any)

	mu    sync.Mutex
	open  int
	peers map[string]*peer // by address
	turn  int64            // counts up with each change of a connection

	evicted, refused int64 // since the start
	told             rate.Sometimes
}

// peer is an address with open connections. Both lists hold *connection, the one
// that has been in it for the longest first.
type peer struct {
	idle, busy list.List
}

func (p *peer) count() int { return p.idle.Len() + p.busy.Len() }

// connection is one that is open.
type connection struct {
	net.Conn

	among   *connections
	address string
	// place is in a list of the address, nil once the connection is closed; since
	// is the turn at which it came there.
	place *list.Element
	since int64
}

func newConnections(ctx context.Context, listener net.Listener, inAll, fromOne int, log *slog.Logger) *connections {
	return &connections{
		Listener: listener, inAll: inAll, fromOne: fromOne, peers: map[string]*peer{},
		warn: func(values ...any) {
			log.WarnContext(ctx, "too many connections, idle ones are closed for new ones", values...)
		},
		told: rate.Sometimes{First: 1, Interval: time.Minute},
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
	own, known := l.peers[c.address]
	if !known {
		own = &peer{}
	}
	switch {
	case own.count() >= l.fromOne:
		victim = first(&own.idle)
	case l.open >= l.inAll:
		victim = l.dispensable(own.count())
	}
	if victim != nil {
		l.evicted++
		l.remove(victim)
	}
	ok = l.open < l.inAll && own.count() < l.fromOne
	if ok {
		l.open++
		l.peers[c.address] = own
		l.put(c, &own.idle)
	} else {
		l.refused++
	}
	if victim != nil || !ok {
		l.tell()
	}
	return victim, ok
}

// dispensable is the connection to close for one of an address that has so many;
// nil for none. It is of the address that has the most: the one that has been
// idle for the longest, or, if none is, and the address still keeps more than the
// newcomer's will have, the one with the oldest request.
func (l *connections) dispensable(have int) *connection {
	var found *connection
	most := 0
	for _, p := range l.peers {
		candidate := first(&p.idle)
		if candidate == nil && p.count() > have+1 {
			candidate = first(&p.busy)
		}
		if candidate == nil {
			continue
		}
		if n := p.count(); n > most || (n == most && candidate.since < found.since) {
			found, most = candidate, n
		}
	}
	return found
}

// changed is told by [http.Server] when a request on a connection begins or ends.
func (l *connections) changed(conn net.Conn, state http.ConnState) {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = outer.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok || (state != http.StateActive && state != http.StateIdle) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place == nil {
		return // closed meanwhile
	}
	p := l.peers[c.address]
	to := &p.idle
	if state == http.StateActive {
		to = &p.busy
	}
	p.take(c)
	l.put(c, to)
}

// put adds a connection to a list; the lock is held, as in what follows.
func (l *connections) put(c *connection, to *list.List) {
	l.turn++
	c.since, c.place = l.turn, to.PushBack(c)
}

// take takes a connection out of the list that it is in.
func (p *peer) take(c *connection) {
	p.idle.Remove(c.place) // does nothing in the other list
	p.busy.Remove(c.place)
}

func (l *connections) remove(c *connection) {
	if c.place == nil {
		return
	}
	p := l.peers[c.address]
	p.take(c)
	c.place = nil
	l.open--
	if p.count() == 0 {
		delete(l.peers, c.address)
	}
}

// tell logs what was closed, at most once a minute.
func (l *connections) tell() {
	l.told.Do(func() {
		greatest, most := "", 0
		for address, p := range l.peers {
			if n := p.count(); n > most {
				greatest, most = address, n
			}
		}
		l.warn("evicted", l.evicted, "refused", l.refused,
			"open", l.open, "addresses", len(l.peers), "most_from", greatest, "most", most)
	})
}

func first(of *list.List) *connection {
	if e := of.Front(); e != nil {
		c, _ := e.Value.(*connection)
		return c
	}
	return nil
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.among.mu.Lock()
	c.among.remove(c)
	c.among.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // stands for the connection itself
}

// CloseWrite closes the writing side alone, as net/http does to end an answer.
func (c *connection) CloseWrite() error { return httpserver.CloseWrite(c.Conn) }
