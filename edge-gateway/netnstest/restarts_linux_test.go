package netnstest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"golang.org/x/sys/unix"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// restarts is how often TestRestartsThatNoNodeNotices replaces the gateway; every second
// time by another version of the program.
const restarts = 20

// board is a node in MicroPython that posts every 100 ms by a connection of its own, with the reference node's
// functions, and dies of the first exception, as the customer's firmware does of a refused connection.
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

// foldFor is how far apart copies of one reading may be dated that a node sent to two gateways: readers fold these.
const foldFor = 10 * time.Minute

// account is what came of a site's readings.
type account struct {
	Nodes, Sent, Received int
	Lost                  []string      // sent an interval before the end, and not received
	Twice                 []string      // received again so that no reader folds them
	Copies                int           // received again so that they are folded
	LongestPause          time.Duration // between two measurements of a node
	LongestGap            time.Duration // between two readings of a node, as they are dated
	GapOf                 string
	Latest                time.Duration // from a reading's time to Pub/Sub
}

// TestPairUnderKills kills one of two gateways again and again while 200 nodes send
// readings. PAIR_KILLS, PAIR_EVERY and PAIR_INTERVAL make it longer (make pair-chaos).
func TestPairUnderKills(t *testing.T) { //nolint:paralleltest // measures times
	kills := must.Get(strconv.Atoi(cmp.Or(os.Getenv("PAIR_KILLS"), "3")))(t)
	every, interval := duration(t, "PAIR_EVERY", 8*time.Second), duration(t, "PAIR_INTERVAL", 4*time.Second)
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.3/24", "192.168.77.10/24")
	hosts[2].ip("route", "add", "224.0.0.0/4", "dev", "eth0")
	site := hosts[2].playing(play{Client: "site", Interval: interval})
	must.Equal(t, "the site says", "ready", site.line())

	folder := t.TempDir()
	gateways := make([]*gateway, 2)
	start := func(n int) {
		gateways[n] = hosts[n].startGateway("SITE_TOKEN=of both in this pair", "PUBSUB_EMULATOR_HOST=192.168.77.10:8085",
			"OUTBOX_DIR="+filepath.Join(folder, strconv.Itoa(n)), "PUBLISH_TIMEOUT=2s")
	}
	start(0)
	gateways[0].becomes(announce.RoleActive, "monitor-gateway.local")
	start(1)
	gateways[1].becomes(announce.RoleStandby, "monitor-gateway-")
	must.Get(fmt.Fprintln(site.in, "start"))(t)
	began := time.Now()
	for n := range kills {
		time.Sleep(time.Until(began.Add(time.Duration(n+1) * every))) // the pace of the kills; nothing is waited for
		killed := n % 2
		gateways[killed].end(syscall.SIGKILL)
		gateways[1-killed].becomes(announce.RoleActive, "monitor-gateway.local")
		start(killed)
		gateways[killed].becomes(announce.RoleStandby, "monitor-gateway-")
	}
	must.Get(fmt.Fprintln(site.in, "end"))(t)
	var a account
	must.Do(t, json.Unmarshal([]byte(site.line()), &a))
	t.Logf("%d kills, %d nodes every %v: %d readings sent, %d received, %d lost, %d shown twice, %d copies that readers fold; longest pause %v, longest gap %v, which is %.2f intervals (%s); latest %v after it was measured",
		kills, a.Nodes, interval, a.Sent, a.Received, len(a.Lost), len(a.Twice), a.Copies, a.LongestPause, a.LongestGap, a.LongestGap.Seconds()/interval.Seconds(), a.GapOf, a.Latest)
	must.Hold(t, a.Nodes == siteNodes && a.Received >= siteNodes, "only %d nodes with %d readings", a.Nodes, a.Received)
	must.Hold(t, len(a.Lost) == 0 && len(a.Twice) == 0, "lost: %v\nshown twice: %v", a.Lost, a.Twice)
	// A node whose gateway does not answer looks for it again, and says how old the reading is that it sends an interval
	// later. Where the machine was too busy for the node to measure, there is nothing to send.
	must.Hold(t, a.LongestGap <= a.LongestPause+interval,
		"%s has a gap of %v, want at most an interval beyond the pause of a node, %v", a.GapOf, a.LongestGap, a.LongestPause)
}

func duration(t *testing.T, name string, standard time.Duration) time.Duration {
	t.Helper()
	return must.Get(time.ParseDuration(cmp.Or(os.Getenv(name), standard.String())))(t)
}

const siteNodes = 200

// site is a Pub/Sub and the nodes of a site, on a host of their own. From "start" to "end" the nodes
// send; then it prints the account.
func (p play) site() error {
	server := pstest.NewServerWithAddress("0.0.0.0:8085")
	defer func() { _ = server.Close() }()
	topic := &pubsubpb.Topic{Name: "projects/site/topics/data"}
	if _, err := server.GServer.CreateTopic(context.Background(), topic); err != nil {
		return err
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	sent := &ledger{first: map[string]time.Time{}, next: &http.Transport{MaxIdleConnsPerHost: siteNodes}}
	nodes, err := nodesim.New(nodesim.Config{
		Resolve: resolveName, Nodes: siteNodes, Speed: float64(nodesim.Interval) / float64(p.Interval), Seed: 1, Clock: time.Now, Log: slog.New(slog.DiscardHandler), Transport: sent,
	})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = nodes.Run(ctx) })
	lines.Scan()
	// What is unanswered now goes out with each node's next reading.
	ended := time.Now()
	var a account
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if a, err = sent.settle(server.Messages(), ended); err != nil || len(a.Lost) == 0 || time.Now().After(deadline) {
			break
		}
	}
	stop()
	running.Wait()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

// resolveName asks for the specified name, as a node does when it has no address.
func resolveName(ctx context.Context) (string, error) {
	i, err := net.InterfaceByName("eth0")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addresses, err := discover.Resolve(ctx, *i, discover.Legacy)
	if err != nil {
		return "", err
	}
	return "http://" + netip.AddrPortFrom(addresses[0], port).String(), nil
}

// ledger notes each reading that a node sends, and when it was measured.
type ledger struct {
	next http.RoundTripper

	mu    sync.Mutex
	first map[string]time.Time // by node and message id
}

func (l *ledger) RoundTrip(r *http.Request) (*http.Response, error) {
	if body, err := r.GetBody(); err == nil && r.URL.Path == "/api/v1/message" {
		var m struct {
			ID   string  `json:"id"`
			Node string  `json:"node_id"`
			Age  float64 `json:"age_s"`
		}
		if json.NewDecoder(body).Decode(&m) == nil {
			l.mu.Lock()
			if key := m.Node + " " + m.ID; l.first[key].IsZero() {
				l.first[key] = time.Now().Add(-time.Duration(m.Age * float64(time.Second)))
			}
			l.mu.Unlock()
		}
	}
	return l.next.RoundTrip(r)
}

func (l *ledger) settle(messages []*pstest.Message, ended time.Time) (account, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := account{Sent: len(l.first)}
	received := map[string][]reading.Reading{}
	byNode := map[string][]time.Time{}
	for _, m := range messages {
		data, err := wire.DecodeData(m.Data, m.PublishTime)
		if err != nil {
			return account{}, err
		}
		r := data.Reading
		if key := r.NodeID + " " + r.MessageID; !l.first[key].IsZero() { // else the gateway's own, to try Pub/Sub
			received[key] = append(received[key], r)
			a.Latest = max(a.Latest, m.PublishTime.Sub(r.Time))
		}
	}
	a.Received = len(received)
	sent := map[string][]time.Time{}
	for key, at := range l.first {
		node, _, _ := strings.Cut(key, " ")
		sent[node] = append(sent[node], at)
		if at.Before(ended) && len(received[key]) == 0 {
			a.Lost = append(a.Lost, key)
		}
	}
	for _, times := range sent {
		a.LongestPause = max(a.LongestPause, longest(times))
	}
	for key, copies := range received {
		slices.SortFunc(copies, func(a, b reading.Reading) int { return a.Time.Compare(b.Time) })
		byNode[copies[0].NodeID] = append(byNode[copies[0].NodeID], copies[0].Time)
		for _, c := range copies[1:] {
			a.Copies++
			if c.Temperature != copies[0].Temperature || c.Humidity != copies[0].Humidity || c.Time.Sub(copies[0].Time) >= foldFor {
				a.Twice = append(a.Twice, key)
			}
		}
	}
	a.Nodes = len(byNode)
	for node, times := range byNode {
		if gap := longest(times); gap > a.LongestGap {
			a.LongestGap, a.GapOf = gap, node
		}
	}
	return a, nil
}

// longest is the longest time between two.
func longest(times []time.Time) (gap time.Duration) {
	slices.SortFunc(times, time.Time.Compare)
	for i := range times[1:] {
		gap = max(gap, times[i+1].Sub(times[i]))
	}
	return gap
}
