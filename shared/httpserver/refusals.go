package httpserver

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// Refusal makes the JSON body of an error that net/http answers by itself, without
// calling a handler.
type Refusal func(detail string) []byte

// plainRefusal are the header fields of the errors that net/http answers by itself. It
// writes each with a single Write to the connection. The answer of a handler never
// looks like that, because it has a Date.
const plainRefusal = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// expectationFailed begins net/http's answer to an Expect other than 100-continue. It
// has no body.
const expectationFailed = "HTTP/1.1 417 Expectation Failed\r\n"

// refusals is a listener whose connections replace net/http's plain text errors by
// JSON. http.Server has no hook for that.
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
	return &refusingConn{conn, l.body}, nil // a pointer, for maps
}

type refusingConn struct {
	net.Conn

	body Refusal
}

// Write implements [net.Conn].
func (c *refusingConn) Write(p []byte) (int, error) {
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

// CloseWrite is called by [CloseWrite].
func (c *refusingConn) CloseWrite() error { return CloseWrite(c.Conn) }

// NetConn is the wrapped connection.
func (c *refusingConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the writing side of a connection. net/http does so after it has
// refused a request, so that the client reads the answer before the connection is
// reset. Every wrapper of a connection must pass the call on.
func CloseWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// refused reports whether p is an error that net/http answers by itself, with its
// status and its text.
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
