package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// newTimedSite returns a gateway on the time of a synctest bubble.
func newTimedSite(config gateway.Config) (*gateway.Gateway, *record) {
	published := &record{}
	return gateway.New(config, published, noOutbox(errors.New("no disk")), time.Now, logging.Discard()), published
}

// post does not hold the many answers of a flood against the document.
func post(t *testing.T, handler http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return recorder
}

// TestFastNode sends one after the other, faster than its rate: it is slowed
// down to the rate and loses nothing. Contract 8.11.
func TestFastNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site, published := newTimedSite(gateway.Config{NodeRate: 50, NodeBurst: 100})
		began := time.Now()
		for i := range 300 {
			must.Equal(t, fmt.Sprintf("answer to reading %d", i), http.StatusOK, post(t, site, "/api/v1/message", string(measured(1, i))).Code)
		}
		must.Equal(t, "readings published", 300, len(published.all()))
		must.Equal(t, "200 readings beyond the burst took", 4*time.Second, time.Since(began))
	})
}

// TestFlood has one node send as much as it can over many connections, and another one send at its own pace.
func TestFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site, published := newTimedSite(gateway.Config{NodeRate: 50, NodeBurst: 100})
		const connections, duration = 500, 10 * time.Second
		began := time.Now()
		var flooding sync.WaitGroup
		var mu sync.Mutex
		answers := map[int]int{}
		for c := range connections {
			flooding.Go(func() {
				for i := 0; time.Since(began) < duration; i++ {
					answer := post(t, site, "/api/v1/message", string(measured(1, c*100000+i)))
					if answer.Code == http.StatusTooManyRequests && (answer.Header().Get("Retry-After") != "1" || answer.Body.String() != `{"error":"Too many requests"}`+"\n") {
						t.Errorf("refused with %v %s", answer.Header(), answer.Body)
					}
					mu.Lock()
					answers[answer.Code]++
					mu.Unlock()
				}
			})
		}
		for i := range 10 {
			time.Sleep(time.Second)
			sent := time.Now()
			if answer := post(t, site, "/api/v1/message", string(measured(2, i))); answer.Code != http.StatusOK || time.Since(sent) > 0 {
				t.Errorf("the quiet node was answered %d after %s", answer.Code, time.Since(sent))
			}
			must.Equal(t, "another node's heartbeat was answered", http.StatusOK, post(t, site, "/api/v1/heartbeat", `{"node_id":"node-0003"}`).Code)
		}
		flooding.Wait()
		got := answers[http.StatusOK]
		must.Hold(t, got >= 550 && got <= 700, "%d readings of the flood were taken in 10 s, want about 100 + 10 × 50", got)
		if got := answers[http.StatusTooManyRequests]; got > 11*connections {
			t.Errorf("%d requests were refused: a connection can flood faster than one request a second", got)
		}
		must.Equal(t, "readings published", answers[http.StatusOK]+10, len(published.all()))
	})
}

func TestTableOfNodesIsBounded(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{MaxNodes: 3, NodeRate: 1000, NodeBurst: 1000}, nil)
	for i := range 10 {
		must.Equal(t, fmt.Sprintf("node %d was answered", i), 200, s.message(string(measured(i, 1))))
	}
	must.Contain(t, "the list", s.get("/api/v1/nodes"), `"total":3`)
	if got := s.published.last(); got.Reading.NodeID != "node-0009" || got.Recent.Len() != 0 {
		t.Errorf("a node beyond the bound was published as %v", got)
	}
	// Nodes that have gone make room.
	s.pass(6 * time.Minute)
	s.message(string(measured(0, 2)))
	s.message(string(measured(20, 1)))
	s.message(string(measured(20, 2)))
	must.Equal(t, "the window of a node that came when others had gone holds", 1, s.published.last().Recent.Len())
}

// TestSpoofedNode has somebody send as much as it can under the id of a node, and under ids that it invents, more than
// the gateway remembers: the node notices nothing. Contract 8.11.
func TestSpoofedNode(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]func(c, i int) int{
		"under its id":       func(int, int) int { return 2 },
		"under invented ids": func(c, i int) int { return 1000 + c*1000 + i },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				site, published := newTimedSite(gateway.Config{NodeRate: 50, NodeBurst: 100, AddressRate: 60, MaxNodes: 50})
				send := func(address string, node, i int) (status int) {
					request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/message", strings.NewReader(string(measured(node, i))))
					request.RemoteAddr = address
					recorder := httptest.NewRecorder()
					site.ServeHTTP(recorder, request)
					return recorder.Code
				}
				began := time.Now()
				var flooding sync.WaitGroup
				for c := range 200 {
					flooding.Go(func() {
						for i := 0; time.Since(began) < 10*time.Second; i++ {
							send("192.168.7.66:4000", id(c, i), c*1000+i)
						}
					})
				}
				for i := range 10 {
					time.Sleep(time.Second)
					sent := time.Now()
					if status := send("192.168.7.9:4000", 2, 900_000+i); status != http.StatusOK || time.Since(sent) > 0 {
						t.Errorf("the node was answered %d after %s", status, time.Since(sent))
					}
				}
				flooding.Wait()
				all := published.all()
				must.Hold(t, len(all) <= 121+11*60+10, "%d readings were published in 10 s", len(all))
			})
		})
	}
}

// The limits of connections.
const (
	inAll   = 4096
	fromOne = 1024
)

// clients are the clients of a server, each with an address of its own.
type clients struct {
	t      *testing.T
	server string
	log    logtest.Buffer
	slow   atomic.Int64 // requests under way
}

// newClients starts a server for them. It answers /health, and /slow only when the test ends.
func newClients(t *testing.T) *clients {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	c := &clients{t: t, server: listener.Addr().String()}
	over := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			c.slow.Add(1)
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "well")
	})
	log := logging.New(&c.log, slog.LevelInfo, "")
	background(t, func(ctx context.Context) error { return gateway.Serve(ctx, listener, handler, log) })
	t.Cleanup(func() { close(over) })
	return c
}

// dial connects from an address of this machine.
func (c *clients) dial(from string) net.Conn {
	c.t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	conn, err := dialer.DialContext(c.t.Context(), "tcp", c.server)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EMFILE) {
		tooltest.Unable(c.t, "this system does not allow it: %v", err)
	}
	must.Do(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request and reads the answer; an error means that there was none.
func ask(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// hold opens connections from an address and leaves them idle after a request.
func (c *clients) hold(from string, n int) []net.Conn {
	c.t.Helper()
	held := make([]net.Conn, n)
	for i := range held {
		held[i] = c.dial(from)
		if err := ask(held[i]); err != nil {
			c.t.Fatalf("connection %d from %s: %v", i, from, err)
		}
	}
	return held
}

// occupy opens connections from an address with a request under way on each.
func (c *clients) occupy(from string, n int) {
	c.t.Helper()
	want := c.slow.Load() + int64(n)
	for range n {
		must.Get(io.WriteString(c.dial(from), "GET /slow HTTP/1.1\r\nHost: gateway\r\n\r\n"))(c.t)
	}
	must.Eventually(c.t, "the requests to be under way", func() bool { return c.slow.Load() == want })
}

// closed says whether the server has closed a connection. It asks the kernel and not Read,
// which looks at nothing when the deadline is over that it needs.
func closed(conn net.Conn) (is bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		is = n == 0 && err == nil || err != nil && !errors.Is(err, syscall.EAGAIN)
	})
	return is
}

// TestIdleConnectionsMakeRoom has five devices hold as many connections as they can get. Whoever comes is let in, and
// who was there before them stays. Contract 8.11.
func TestIdleConnectionsMakeRoom(t *testing.T) { //nolint:paralleltest // thousands of open files each
	c := newClients(t)
	node := c.hold("127.0.0.9", 1)[0]
	var crowd []net.Conn
	for i := range 5 {
		crowd = append(crowd, c.hold(fmt.Sprintf("127.0.0.%d", 2+i), fromOne)...)
	}
	for range 20 {
		must.Do(t, ask(c.dial("127.0.0.1"))) // a newcomer
	}
	must.Do(t, ask(node)) // it keeps its connection
	const want = 5*fromOne + 1 + 20 - inAll
	ended := 0
	must.Eventually(t, "connections of the crowd to be closed", func() bool {
		ended = 0
		for _, conn := range crowd {
			if closed(conn) {
				ended++
			}
		}
		return ended >= want
	})
	must.Equal(t, "connections of the crowd were closed", want, ended)
	lines := strings.Count(c.log.String(), "idle ones are closed")
	must.Hold(t, lines == 1, "%d lines in the log, want one a minute:\n%s", lines, c.log.String())
	must.Contain(t, "the log", c.log.String(), `"closed_from":"127.0.0.2","which_has":1024,"newest_from":"127.0.0.5"`)
}

// TestOneAddressCannotTakeAllConnections opens more than its share from one
// address: those that have been idle for the longest go. Contract 8.11.
func TestOneAddressCannotTakeAllConnections(t *testing.T) { //nolint:paralleltest // thousands of open files each
	c := newClients(t)
	held := c.hold("127.0.0.1", fromOne)
	// The server notes that a connection is idle after its client has the answer, so that
	// neighbours may change places. After these the second has been idle for the longest.
	for _, conn := range slices.Delete(slices.Clone(held), 1, 2) {
		must.Do(t, ask(conn))
	}
	must.Do(t, ask(c.dial("127.0.0.1"))) // one more
	must.Eventually(t, "the oldest to be closed", func() bool { return closed(held[1]) })
	for i, conn := range held {
		must.Equal(t, fmt.Sprintf("connection %d is closed", i), i == 1, closed(conn))
	}
}

// TestConnectionsThatAreNotIdle fills an address's share, and then all there is, with requests that take their time.
func TestConnectionsThatAreNotIdle(t *testing.T) { //nolint:paralleltest // thousands of open files each
	c := newClients(t)
	c.occupy("127.0.0.2", fromOne)
	must.Hold(t, ask(c.dial("127.0.0.2")) != nil, "one more from the address is let in")
	for i := range 3 {
		c.occupy(fmt.Sprintf("127.0.0.%d", 3+i), fromOne)
	}
	for range 20 {
		must.Do(t, ask(c.dial("127.0.0.1"))) // a newcomer
	}
}
