package cluster_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"coldaisle.dev/run/tools/soak/cluster"
)

// echo answers every line with itself.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

func TestLine(t *testing.T) {
	t.Parallel()
	line, err := cluster.NewLine(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	conn, err := net.Dial("tcp", line.Address())
	if err != nil {
		t.Fatal(err)
	}
	answer := bufio.NewReader(conn)
	ask := func(within time.Duration) error {
		if _, err := conn.Write([]byte("there?\n")); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(within))
		_, err := answer.ReadString('\n')
		return err
	}
	if err := ask(time.Minute); err != nil {
		t.Fatalf("the whole line: %v", err)
	}
	line.Slow(50 * time.Millisecond)
	began := time.Now()
	if err := ask(time.Minute); err != nil || time.Since(began) < 100*time.Millisecond {
		t.Errorf("the slow line answered after %s, %v; want 100 ms at least", time.Since(began), err)
	}
	line.Slow(0)
	line.Set(cluster.Silent)
	if err := ask(100 * time.Millisecond); err == nil {
		t.Error("the silent line answered")
	}
	line.Set(cluster.Whole)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := answer.ReadString('\n'); err != nil {
		t.Errorf("what was sent while the line was silent is gone: %v", err)
	}
	line.Set(cluster.Refused)
	if err := ask(time.Minute); err == nil {
		t.Error("the cut line answered")
	}
}
