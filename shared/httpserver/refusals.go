package httpserver

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// Refusal gives the body, in JSON, of an answer that net/http itself makes to a
// request that no handler gets to see.
type Refusal func(detail string) []byte

// net/http writes what it answers by itself straight to the connection, each
// with one Write and these header fields. A handler's answer never looks like
// it: it has a Date.
const plainRefusal = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// An Expect other than 100-continue is answered by net/http too, without a body.
const expectationFailed = "HTTP/1.1 417 Expectation Failed\r\n"

// refusals is a listener whose connections say in JSON what net/http says in
// plain text: there is no hook for it in http.Server.
type refusals struct {
	net.Listener

	body Refusal
}

// Accept implements [net.Listener].
func (l refusals) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // http.Server tells a closed listener by identity
	}
	return refusingConn{conn, l.body}, nil
}

type refusingConn struct {
	net.Conn

	body Refusal
}

// Write implements [net.Conn].
func (c refusingConn) Write(p []byte) (int, error) {
	status, detail, ok := refused(p)
	if !ok {
		return c.Conn.Write(p) //nolint:wrapcheck // stands for the connection itself
	}
	body := c.body(detail)
	answer := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err //nolint:wrapcheck // stands for the connection itself
	}
	return len(p), nil
}

// CloseWrite implements what [CloseWrite] asks for.
func (c refusingConn) CloseWrite() error { return CloseWrite(c.Conn) }

// NetConn is the connection below, as the listener gave it.
func (c refusingConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the writing side of a connection, which is what net/http ends
// a refused request with, so that the client reads the answer before the
// connection is reset. Every wrapper of a connection must pass it on.
func CloseWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// refused reports an answer that net/http makes by itself: its status and its
// text without the status.
func refused(p []byte) (status int, detail string, ok bool) {
	if bytes.HasPrefix(p, []byte(expectationFailed)) {
		return http.StatusExpectationFailed, http.StatusText(http.StatusExpectationFailed), true
	}
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	after, ok := bytes.CutPrefix(p[len(line):], []byte(plainRefusal))
	if !ok {
		return 0, "", false
	}
	_, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil {
		return 0, "", false
	}
	return status, string(bytes.TrimPrefix(after, append(code, ' '))), true
}
