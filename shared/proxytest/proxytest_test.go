package proxytest_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/proxytest"
)

// echo answers every line with itself.
func echo(t *testing.T) string {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewScanner(conn); in.Scan(); {
					_, _ = conn.Write(append(in.Bytes(), '\n'))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	proxy := must.Get(proxytest.New(t.Context(), echo(t)))(t)
	t.Cleanup(proxy.Close)
	conn := must.Get(net.Dial("tcp", proxy.Address()))(t)
	answer := bufio.NewReader(conn)
	ask := func(within time.Duration) error {
		if _, err := conn.Write([]byte("there?\n")); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(within))
		_, err := answer.ReadString('\n')
		return err
	}
	must.Do(t, ask(time.Minute))
	proxy.SetLatency(50 * time.Millisecond)
	began := time.Now()
	if err := ask(time.Minute); err != nil || time.Since(began) < 100*time.Millisecond {
		t.Errorf("the slow proxy answered after %s, %v; want 100 ms at least", time.Since(began), err)
	}
	proxy.SetLatency(0)
	proxy.SetMode(proxytest.Stall)
	must.Hold(t, ask(100*time.Millisecond) != nil, "the stalled proxy answered")
	proxy.SetMode(proxytest.Forward)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	must.Get(answer.ReadString('\n'))(t) // what was sent while the proxy stalled
	proxy.SetMode(proxytest.Refuse)
	must.Hold(t, ask(time.Minute) != nil, "the refusing proxy answered")
}
