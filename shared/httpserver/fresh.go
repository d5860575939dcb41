package httpserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// freshFor is how long an accepted connection may take to send its first request, as
// [http.Server.Shutdown] has it.
const freshFor = 5 * time.Second

// fresh are the connections whose first request has not reached the handler. net/http
// closes one without an answer whose request it reads after Shutdown has begun; the client
// of a program that is restarted must not notice.
type fresh struct {
	mu    sync.Mutex
	conns map[net.Conn]*time.Timer // that forgets it
}

type connKey struct{}

// watch sets the hooks of a server.
func (f *fresh) watch(server *http.Server) {
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	changed, handler := server.ConnState, server.Handler
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			f.mu.Lock()
			f.conns[conn] = time.AfterFunc(freshFor, func() { f.forget(conn) })
			f.mu.Unlock()
		case http.StateClosed, http.StateHijacked:
			f.forget(conn)
		case http.StateActive, http.StateIdle:
		}
		if changed != nil {
			changed(conn, state)
		}
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			f.forget(conn)
		}
		handler.ServeHTTP(w, r)
	})
}

func (f *fresh) forget(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if timer, ok := f.conns[conn]; ok {
		timer.Stop()
		delete(f.conns, conn)
	}
}

// wait waits until there is none, which is within freshFor when no more are accepted.
func (f *fresh) wait() {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		f.mu.Lock()
		n := len(f.conns)
		f.mu.Unlock()
		if n == 0 {
			return
		}
		<-poll.C
	}
}
