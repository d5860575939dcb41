package serving

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// JSONErrors gives the answers that net/http writes without asking the handler
// the form {"member": text}. These are the answers to what it cannot read as a
// request: a header that is too large (431), malformed (400), or wants a
// transfer encoding (501), an HTTP version (505) or an expectation (417) that it
// does not know. net/http has no hook for them, so they are recognised on their
// way out.
func JSONErrors(listener net.Listener, member string) net.Listener {
	return jsonErrors{listener, member}
}

type jsonErrors struct {
	net.Listener

	member string
}

// Accept implements [net.Listener].
func (l jsonErrors) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // http.Server tells a closed listener by identity
	}
	return &jsonErrorConn{Conn: conn, member: l.member}, nil
}

type jsonErrorConn struct {
	net.Conn

	member string
}

// Write implements [net.Conn].
func (c *jsonErrorConn) Write(p []byte) (int, error) {
	status, text := serversOwn(p)
	if status == 0 {
		return c.Conn.Write(p) //nolint:wrapcheck // stands for the connection itself
	}
	body, err := json.Marshal(map[string]string{c.member: text})
	if err != nil {
		return 0, fmt.Errorf("encode error: %w", err)
	}
	_, err = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), len(body)+1, body)
	if err != nil {
		return 0, err //nolint:wrapcheck // stands for the connection itself
	}
	return len(p), nil
}

// CloseWrite lets net/http end an answer to a request that it has not read to
// its end, without a reset that would take the answer away from the client.
func (c *jsonErrorConn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite closes the writing side of a connection that has one. A wrapper of
// connections must pass it on.
func CloseWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// What net/http writes between the status line of its own answers and their
// text, always in one piece. An answer of a handler has a date.
const ownHeader = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

const (
	protocol   = "HTTP/1.1 "
	longestOwn = 512 // bytes; its texts are constants
)

// serversOwn returns status and text of an answer that net/http has written by
// itself; 0 for one of a handler's.
func serversOwn(p []byte) (status int, text string) {
	rest, ok := bytes.CutPrefix(p, []byte(protocol))
	if !ok || len(p) > longestOwn || len(rest) < 3 {
		return 0, ""
	}
	status, err := strconv.Atoi(string(rest[:3]))
	if err != nil {
		return 0, ""
	}
	if status == http.StatusExpectationFailed {
		return status, http.StatusText(status)
	}
	_, body, ok := bytes.Cut(rest, []byte(ownHeader))
	if !ok {
		return 0, ""
	}
	body = bytes.TrimPrefix(body, []byte(strconv.Itoa(status)+" "))
	return status, string(body)
}
