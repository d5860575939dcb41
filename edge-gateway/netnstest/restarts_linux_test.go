package netnstest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"golang.org/x/sys/unix"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/wire"
)

// restarts is how often TestRestartsThatNoNodeNotices replaces the gateway; every second
// time by another version of the program.
const restarts = 20

// board is a node in MicroPython that posts every 100 ms by a connection of its own, with
// the reference node's functions, and dies of the first exception, as the customer's
// firmware does of a refused connection.
const board = `
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/hardware"]
import link, select, time
link.print = lambda *said: None
poll = select.poll()
poll.register(sys.stdin, select.POLLIN)
name = "monitor-gateway.local"
address = link.resolve(name, 8080, lambda: None)
n = 0
while not poll.poll(0):
    reading = {"id": "m%d" % n, "node_id": "board", "temperature": 21.5, "humidity": 40}
    status, answer = link.post(address, name, "/api/v1/message", lambda: reading, lambda: None)
    if status != 200 and not answer.get("kept"):
        raise ValueError("%s answered %d %s" % (reading, status, answer))
    print(reading["id"])
    n += 1
    time.sleep_ms(100)
`

// TestRestartsThatNoNodeNotices restarts and upgrades the gateway behind a socket that
// somebody else holds, as systemd does with monitor-gateway.socket, while a board sends
// readings: no connection is refused, and each answered reading has arrived once.
func TestRestartsThatNoNodeNotices(t *testing.T) {
	t.Parallel()
	micropython := need(t, "micropython")
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.10/24")
	machine, node := hosts[0], hosts[1]
	node.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
	var server *pstest.Server
	node.inside(func() { server = pstest.NewServerWithAddress("0.0.0.0:8085") })
	t.Cleanup(func() { _ = server.Close() })
	must.Get(server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/site/topics/data"}))(t)
	var listener *net.TCPListener
	var err error
	machine.inside(func() { listener, err = net.ListenTCP("tcp", &net.TCPAddr{Port: port}) })
	must.Do(t, err)
	socket := must.Get(listener.File())(t)
	t.Cleanup(func() { _ = socket.Close() })
	_ = listener.Close() // socket is a copy

	versions := []string{gatewayProgram(t), filepath.Join(t.TempDir(), "next")}
	must.Do(t, processtest.Build(t.Context(), versions[1], "coldaisle.dev/edge-gateway", "next"))
	installed := filepath.Join(t.TempDir(), "monitor-gateway")
	install := func(n int) { // over the one that runs, as dpkg does
		t.Helper()
		_ = os.Remove(installed + ".new")
		must.Do(t, os.Link(versions[n%len(versions)], installed+".new"))
		must.Do(t, os.Rename(installed+".new", installed))
	}
	g := &gateway{host: machine}
	folder := t.TempDir()
	start := func() {
		t.Helper()
		// sd_listen_fds(3): the socket is descriptor 3, LISTEN_PID the process itself.
		g.process = machine.command(context.WithoutCancel(t.Context()), []string{
			"PROJECT_ID=site", "PUBSUB_EMULATOR_HOST=192.168.77.10:8085", "OUTBOX_DIR=" + folder, "NODE_RATE=0",
		}, "sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0"`, installed)
		g.process.ExtraFiles = []*os.File{socket}
		g.process.Stderr = &g.log
		must.Do(t, g.process.Start())
	}
	t.Cleanup(func() {
		g.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", g.log.String())
		}
	})
	install(0)
	start()
	g.becomes(announce.RoleActive, "monitor-gateway.local")

	file := filepath.Join(t.TempDir(), "board.py")
	must.Do(t, os.WriteFile(file, []byte(board), 0o600))
	firmware := must.Get(filepath.Abs("../nodes/micropython"))(t)
	var printed logtest.Buffer
	died := make(chan error, 1)
	running := node.command(context.WithoutCancel(t.Context()), nil, micropython, file, firmware)
	running.Stdout, running.Stderr = &printed, &printed
	input := must.Get(running.StdinPipe())(t)
	must.Do(t, running.Start())
	go func() { died <- running.Wait() }()
	t.Cleanup(func() { _ = input.Close() })
	answered := func() []string { return strings.Fields(printed.String()) }
	posts := func() {
		t.Helper()
		before := len(answered())
		must.Eventually(t, "the board posts", func() bool {
			select {
			case err := <-died:
				t.Fatalf("the board died: %v\n%s", err, printed.String())
			default:
			}
			return len(answered()) >= before+3
		})
	}
	for n := 1; n <= restarts; n++ {
		posts()
		install((n + 1) / 2)
		must.Do(t, g.process.Process.Signal(syscall.SIGTERM))
		must.Do(t, g.process.Wait())
		start()
	}
	posts()
	_ = input.Close()
	if err := <-died; err != nil {
		t.Fatalf("the board ended with %v:\n%s", err, printed.String())
	}
	var arrived map[string]int
	must.Eventually(t, "every answered reading has arrived", func() bool {
		arrived = map[string]int{}
		for _, m := range server.Messages() {
			data := must.Get(wire.DecodeData(m.Data, m.PublishTime))(t)
			if data.Reading.NodeID == "board" {
				arrived[data.Reading.MessageID]++
			}
		}
		return len(arrived) == len(answered())
	})
	for _, id := range answered() {
		must.Equal(t, "arrivals of reading "+id, 1, arrived[id])
	}
	log := g.log.String()
	if all, next := strings.Count(log, `"message":"serving"`), strings.Count(log, `"version":"next"`); all != restarts+1 || next != restarts/2 {
		t.Errorf("%d starts, %d of the next version, want %d and %d", all, next, restarts+1, restarts/2)
	}
	t.Logf("%d restarts, every second one with another version: %d readings, each answered and published once", restarts, len(arrived))
}

// inside runs a function in the host's network. Sockets that it opens stay there.
func (h *host) inside(do func()) {
	h.t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		network, err := os.Open("/var/run/netns/" + h.name)
		if err == nil {
			defer func() { _ = network.Close() }()
			err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			do()
		}
		done <- err
	}()
	must.Do(h.t, <-done)
}
