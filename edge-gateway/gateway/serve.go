package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"coldaisle.dev/shared/serving"
)

// Limits of connections, for a small machine on a network of small devices.
const (
	maxConnections = 4096
	// perAddress leaves most connections to others when one device opens as many
	// as it can; a whole simulated site still fits.
	perAddress = maxConnections / 4
)

// Serve answers on a listener until the context ends, then lets the requests
// under way finish and returns nil. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	limits := serving.Limits{
		HeaderTime: 5 * time.Second,
		ReadTime:   10 * time.Second,
		WriteTime:  20 * time.Second, // longer than a turn and two publishes may take
		IdleTime:   2 * time.Minute,  // nodes that keep their connection post every 30 s
		HeaderSize: 8 << 10,
		Refusal:    func(text string) []byte { return encoded(errorBody{Error: text}) },
	}
	limited := newAddressLimit(netutil.LimitListener(listener, maxConnections), perAddress)
	return serving.Run(ctx, limited, handler, limits, log, slog.LevelDebug)
}

// addressLimit closes at once what one address opens beyond so many connections.
type addressLimit struct {
	net.Listener

	limit int

	mu   sync.Mutex
	open map[string]int // by address
}

func newAddressLimit(listener net.Listener, limit int) *addressLimit {
	return &addressLimit{Listener: listener, limit: limit, open: map[string]int{}}
}

// Accept implements [net.Listener].
func (l *addressLimit) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // http.Server tells a closed listener by identity
		}
		address := host(conn.RemoteAddr().String())
		if l.enter(address) {
			return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *addressLimit) enter(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address] >= l.limit {
		return false
	}
	l.open[address]++
	return true
}

func (l *addressLimit) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
}

type countedConn struct {
	net.Conn

	leave func()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close() //nolint:wrapcheck // stands for the connection itself
}

// CloseWrite closes the writing side alone, as net/http does to end an answer.
func (c *countedConn) CloseWrite() error { return serving.CloseWrite(c.Conn) }

// host is the address of host:port.
func host(hostPort string) string {
	address, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	return address
}
