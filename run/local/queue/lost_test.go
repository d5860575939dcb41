package queue_test

import (
	"context"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

// TestConnectionsThatANetworkLost are neither closed nor pass anything: messages are acknowledged by
// another session, although the server still has the one before.
func TestConnectionsThatANetworkLost(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	address := must.Get(url.Parse(database))(t)
	var lose func()
	address.Host, lose = router(t, address.Host)
	w := open(t, queue.Config{DatabaseURL: address.String()})
	w.run(t, accept, "ingest", "detect")
	direct := connect(t, database)
	acknowledged := func() bool { return rows(t, direct) == 0 }
	w.publish(t, queue.TopicData, "one")
	must.Eventually(t, "the first message is acknowledged", acknowledged)
	lose()
	must.Eventually(t, "the second message is published", func() bool {
		_, err := w.tryPublish(t.Context(), queue.TopicData, "two")
		return err == nil
	})
	must.Eventually(t, "the second message is acknowledged", acknowledged)
}

// router forwards connections to an address. lose makes it forget those that there are.
func router(t *testing.T, to string) (address string, lose func()) {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	var lost atomic.Int64
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
			began := lost.Load()
			pass := func(from, to net.Conn) {
				for buffer := make([]byte, 32<<10); ; {
					n, err := from.Read(buffer)
					if lost.Load() != began {
						return // neither side is told
					}
					if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
						_, _ = from.Close(), to.Close()
						return
					}
				}
			}
			go pass(client, server)
			go pass(server, client)
		}
	}()
	return listener.Addr().String(), func() { lost.Add(1) }
}
