package httpserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/httpserver"
	"coldaisle.dev/shared/logging"
)

// start serves a handler and returns the address.
func start(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	config := httpserver.Config{MaxHeaderBytes: 4 << 10, Refusal: func(detail string) []byte {
		return fmt.Appendf(nil, `{"reason":%q}`, detail)
	}}
	go func() { done <- httpserver.Run(ctx, listener, handler, config, logging.Discard(), slog.LevelDebug) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// answer is one, read whole.
type answer struct {
	status      int
	contentType string
	body        string
}

// send writes bytes as they are and reads one answer.
func send(t *testing.T, address, request string) answer {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(body)}
}

// TestRefusalsBeforeTheHandler makes net/http give every answer that it gives by
// itself.
func TestRefusalsBeforeTheHandler(t *testing.T) {
	t.Parallel()
	address := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was asked") }))
	for name, test := range map[string]struct {
		request string
		status  int
		reason  string
	}{
		"header too large":          {"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", 12<<10) + "\r\n\r\n", 431, "Request Header Fields Too Large"},
		"no request line":           {"nonsense\r\n\r\n", 400, "Bad Request"},
		"no host":                   {"GET / HTTP/1.1\r\n\r\n", 400, "Bad Request: missing required Host header"},
		"malformed host":            {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "Bad Request: malformed Host header"},
		"malformed header":          {"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400, "Bad Request"},
		"unknown version":           {"GET / HTTP/3.1\r\nHost: x\r\n\r\n", 505, "HTTP Version Not Supported: unsupported protocol version"},
		"unknown transfer encoding": {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Unsupported transfer encoding"},
		"unknown expectation":       {"POST / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", 417, "Expectation Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := send(t, address, test.request)
			if want := (answer{test.status, "application/json", fmt.Sprintf(`{"reason":%q}`, test.reason)}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestAnswersOfTheHandlerPass sends what looks most like a refusal.
func TestAnswersOfTheHandlerPass(t *testing.T) {
	t.Parallel()
	address := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "400 Bad Request", http.StatusBadRequest)
	}))
	got := send(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got.status != 400 || got.body != "400 Bad Request\n" {
		t.Errorf("got %+v", got)
	}
}

// lateListener accepts one connection when it is closed already, as Accept may that is
// overtaken by Close.
type lateListener struct {
	context.Context // until Close

	close func()
	late  chan net.Conn
}

func (l lateListener) Accept() (net.Conn, error) {
	<-l.Done()
	if conn, ok := <-l.late; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l lateListener) Close() error { l.close(); return nil }

func (l lateListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestConnectionOfTheLastMomentIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open, shut := context.WithCancel(t.Context())
		l := lateListener{open, shut, make(chan net.Conn, 1)}
		release := make(chan struct{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			_, _ = io.WriteString(w, "answered")
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- httpserver.Run(ctx, l, slow, httpserver.Config{}, logging.Discard(), slog.LevelDebug) }()
		synctest.Wait() // it accepts
		stop()
		synctest.Wait() // the server knows of no connection, and waits for its listener
		client, server := net.Pipe()
		l.late <- server
		close(l.late)
		if _, err := io.WriteString(client, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(done) > 0 {
			t.Error("the server has ended without an answer")
		}
		close(release)
		if text, err := io.ReadAll(client); err != nil || !strings.HasSuffix(string(text), "answered") {
			t.Errorf("answered %q, %v", text, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
