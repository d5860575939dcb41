package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestSupervision starts the gateway as systemd does, without the credentials that it is told
// of, and reads what systemd hears.
func TestSupervision(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		tooltest.Skip(t, "the system has no such sockets: %v", err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	hear := func() string {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(time.Minute))
		buffer := make([]byte, 100)
		return string(buffer[:must.Get(socket.Read(buffer))(t)])
	}
	p := newProcess(t, "", "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000", "GOOGLE_APPLICATION_CREDENTIALS="+path+".json")
	p.start()
	for i, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		must.Equal(t, fmt.Sprintf("message %d to systemd", i), want, hear())
	}
	// One that hangs says nothing more, so that systemd starts it again. What it had said before is still in the socket.
	must.Do(t, p.command.Process.Signal(syscall.SIGSTOP))
	must.Eventually(t, "a stopped gateway is silent", func() bool {
		_ = socket.SetReadDeadline(time.Now().Add(time.Second))
		_, err := socket.Read(make([]byte, 100))
		return err != nil
	})
	must.Do(t, p.command.Process.Signal(syscall.SIGCONT))
	must.Equal(t, "a gateway that goes on says", "WATCHDOG=1", hear())
	must.Do(t, p.end(syscall.SIGTERM))
	must.Contain(t, "the log", p.log.String(), "socket.json: no such file")
}

// TestWatchdogComesAnew holds that the gateway is asked for its health by a new
// connection each time: one that lets nobody in may still answer on an old one.
func TestWatchdogComesAnew(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"healthy","publishing":{"since":"2026-11-20T03:00:00Z"}}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	address, _ := server.Listener.Addr().(*net.TCPAddr)
	for range 3 {
		must.Do(t, alive(t.Context(), address.Port))
	}
	must.Equal(t, "connections for 3 questions", int64(3), opened.Load())
}
