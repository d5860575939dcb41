//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/wire"
)

// hold makes the test the one who holds the gateway's port, as systemd does with
// monitor-gateway.socket (sd_listen_fds(3)): the program gets it as descriptor 3, and
// LISTEN_PID is its own process.
func (p *process) hold(socket *os.File) {
	p.program = func(ctx context.Context) *exec.Cmd {
		command := exec.CommandContext(ctx, "/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0"`, os.Args[0])
		command.ExtraFiles = []*os.File{socket}
		return command
	}
}

// fragileNode is a node that posts by a connection of its own each time and dies of the
// first one that fails, as the customer's firmware does.
type fragileNode struct {
	address string

	mu      sync.Mutex
	died    error
	answers map[string]int // statuses by message id
}

// state is how many readings were answered, and what the node died of.
func (n *fragileNode) state() (answered int, died error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.answers), n.died
}

func (n *fragileNode) post(id string) {
	status, err := n.exchange(fmt.Sprintf(`{"id":%q,"node_id":"fragile","temperature":21.5,"humidity":40}`, id))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.died = err; err == nil {
		n.answers[id] = status
	}
}

func (n *fragileNode) exchange(body string) (status int, err error) {
	conn, err := net.DialTimeout("tcp", n.address, time.Minute)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = fmt.Fprintf(conn, "POST /api/v1/message HTTP/1.0\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode, err
}

// restarts is how often TestRestartsThatNoNodeNotices starts the gateway again;
// GATEWAY_RESTARTS says otherwise.
func restarts(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("GATEWAY_RESTARTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 5
}

// TestRestartsThatNoNodeNotices replaces the program again and again, as an upgrade
// does, while a node posts every 100 ms: no connection is refused, and every reading
// has arrived.
func TestRestartsThatNoNodeNotices(t *testing.T) {
	t.Parallel()
	server := startPubSub(t)
	p := newProcess(t, server.Addr, "NODE_RATE=0")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(p.port))
	if err != nil {
		t.Fatal(err)
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		t.Fatalf("a listener of type %T", listener)
	}
	socket, err := tcp.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	_ = listener.Close() // socket is a copy
	p.hold(socket)
	p.start()
	node := &fragileNode{address: "127.0.0.1:" + strconv.Itoa(p.port), answers: map[string]int{}}
	stop := make(chan struct{})
	var posting sync.WaitGroup
	posting.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			node.post(fmt.Sprintf("%08x", i))
			if _, died := node.state(); died != nil {
				return
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	micropython := startMicroPython(t, p.port)
	for range restarts(t) {
		before, _ := node.state()
		waitFor(t, "the node to post", func() bool { n, died := node.state(); return n >= before+3 || died != nil })
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Fatalf("the gateway ended with %v", err)
		}
		p.start()
	}
	close(stop)
	posting.Wait()
	micropython.end(t)
	if node.died != nil {
		t.Errorf("after %d answers the node died of: %v", len(node.answers), node.died)
	}
	waitFor(t, "the outbox to drain", func() bool { h := p.health(); return h != nil && h.Outbox.Readings == 0 })
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
	arrived := map[string]bool{}
	for _, m := range server.Messages() {
		data, err := wire.DecodeData(m.Data, m.PublishTime)
		if err != nil {
			t.Fatal(err)
		}
		arrived[data.Reading.NodeID+" "+data.Reading.MessageID] = true
	}
	for id, status := range node.answers {
		if !arrived["fragile "+id] {
			t.Errorf("reading %s was answered %d and has not arrived", id, status)
		}
	}
	for _, id := range micropython.ids() {
		if !arrived["micropython "+id] {
			t.Errorf("reading %s of MicroPython has not arrived", id)
		}
	}
}

// board is a node's program in MicroPython; nil where that is not installed.
type board struct {
	command *exec.Cmd
	input   io.Closer
	lines   strings.Builder
}

// boardProgram posts every 100 ms until its input ends, as a board does with the
// sockets that its firmware has, and stops at the first exception.
const boardProgram = `
import socket, sys, time
try:
    import select
except ImportError:
    import uselect as select
poll = select.poll()
poll.register(sys.stdin, select.POLLIN)
n = 0
while not poll.poll(0):
    body = '{"id":"m%d","node_id":"micropython","temperature":21.5,"humidity":40}' % n
    s = socket.socket()
    s.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
    s.write("POST /api/v1/message HTTP/1.0\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    status = s.readline().split()[1]
    s.close()
    if status not in (b"200", b"500"):
        raise ValueError(status)
    print("m%d" % n)
    n += 1
    time.sleep(0.1)
`

func startMicroPython(t *testing.T, port int) *board {
	t.Helper()
	program, err := exec.LookPath("micropython")
	if err != nil {
		t.Log("MicroPython is not installed")
		return nil
	}
	path := t.TempDir() + "/node.py"
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(boardProgram, "PORT", strconv.Itoa(port))), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &board{command: exec.CommandContext(context.WithoutCancel(t.Context()), program, path)}
	b.command.Stdout, b.command.Stderr = &b.lines, &b.lines
	if b.input, err = b.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.command.Start(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *board) end(t *testing.T) {
	t.Helper()
	if b == nil {
		return
	}
	_ = b.input.Close()
	if err := b.command.Wait(); err != nil {
		t.Errorf("MicroPython ended with %v:\n%s", err, b.lines.String())
	}
}

// ids are those of the readings that were answered.
func (b *board) ids() []string {
	if b == nil {
		return nil
	}
	return strings.Fields(b.lines.String())
}
