package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/proxytest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// childEnv makes the test binary the gateway itself.
const childEnv = "GATEWAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Args = os.Args[:1]
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a gateway of its own, which can be killed and started again.
type process struct {
	t       testing.TB
	environ []string
	port    int
	command *exec.Cmd
	program string // empty for this test's own program as a gateway
	log     bytes.Buffer
}

func newProcess(tb testing.TB, pubsub string, settings ...string) *process {
	tb.Helper()
	port := pubsubtest.FreePort(tb)
	p := &process{t: tb, port: port, environ: append(os.Environ(),
		childEnv+"=1", "PROJECT_ID="+testProject, "DATA_TOPIC="+testTopic, "PUBSUB_EMULATOR_HOST="+pubsub,
		"PORT="+strconv.Itoa(port), "OUTBOX_DIR="+tb.TempDir(), "PUBLISH_TIMEOUT=1s", "PROBE_EVERY=200ms", "MDNS=false")}
	p.environ = append(p.environ, settings...)
	tb.Cleanup(func() {
		_ = p.end(syscall.SIGKILL)
		if tb.Failed() {
			tb.Logf("the gateway's log:\n%s", p.log.String())
		}
	})
	return p
}

func (p *process) url() string { return "http://127.0.0.1:" + strconv.Itoa(p.port) }

func (p *process) start() {
	p.t.Helper()
	p.command = exec.CommandContext(context.WithoutCancel(p.t.Context()), cmp.Or(p.program, os.Args[0]))
	p.command.Env = p.environ
	p.command.Stderr = &p.log
	if err := p.command.Start(); err != nil {
		p.t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for p.health() == nil {
		if time.Now().After(deadline) {
			p.t.Fatal("the gateway does not answer")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// end ends the process by a signal and returns what it says.
func (p *process) end(signal syscall.Signal) error {
	if p.command == nil {
		return nil
	}
	_ = p.command.Process.Signal(signal)
	err := p.command.Wait()
	p.command = nil
	return err
}

// health is what the gateway says of itself; nil for no answer.
func (p *process) health() *gateway.Health {
	response, err := http.Get(p.url() + "/health")
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	var h gateway.Health
	if json.NewDecoder(response.Body).Decode(&h) != nil {
		return nil
	}
	return &h
}

// attempt is one request of a node's and its answer.
type attempt struct {
	id             string
	sent, answered time.Time
	status         int // 0 for no answer
}

// load is a site of nodes, each of which sends a reading at an interval. Half of the
// nodes send a reading that was not published again, before their next one. The other
// half, simpler devices, never do.
type load struct {
	url      string
	interval time.Duration
	client   *http.Client
	stop     chan struct{}
	fewer    chan struct{} // closed to stop all nodes but ten
	nodes    sync.WaitGroup

	mu       sync.Mutex
	attempts map[string][]attempt // by node
}

func startLoad(url string, count int, interval time.Duration) *load {
	l := &load{
		url: url, interval: interval, stop: make(chan struct{}), fewer: make(chan struct{}), attempts: map[string][]attempt{},
		client: &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: count}},
	}
	for i := range count {
		fewer := l.fewer
		if i < 10 {
			fewer = nil
		}
		l.nodes.Go(func() { l.node(fmt.Sprintf("node-%03d", i), i%2 == 0, fewer) })
	}
	return l
}

func (l *load) end() {
	close(l.stop)
	l.nodes.Wait()
	l.client.CloseIdleConnections()
}

func (l *load) node(name string, retries bool, fewer <-chan struct{}) {
	type unsent struct{ id, body string }
	var waiting []unsent
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-fewer:
			return
		case <-time.After(l.interval/2 + rand.N(l.interval)):
		}
		id := fmt.Sprintf("%08x", rand.Uint32())
		waiting = append(waiting, unsent{id, fmt.Sprintf(`{"id":%q,"node_id":%q,"temperature":%.1f,"humidity":%.1f}`,
			id, name, 20+rand.Float64(), 40+rand.Float64())})
		var left []unsent
		for _, u := range waiting {
			a := l.post(u.id, u.body)
			l.mu.Lock()
			l.attempts[name] = append(l.attempts[name], a)
			l.mu.Unlock()
			if a.status != http.StatusOK && retries {
				left = append(left, u)
			}
		}
		waiting = left
	}
}

func (l *load) post(id, body string) attempt {
	a := attempt{id: id, sent: time.Now()}
	response, err := l.client.Post(l.url+"/api/v1/message", "application/json", bytes.NewBufferString(body))
	if err == nil {
		a.status = response.StatusCode
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	a.answered = time.Now()
	return a
}

// answers counts those of a status.
func (l *load) answers(status int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, attempts := range l.attempts {
		for _, a := range attempts {
			if a.status == status {
				n++
			}
		}
	}
	return n
}

// took returns how long the answers of a status within a span took, sorted.
func (l *load) took(status int, from, to time.Time) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for _, attempts := range l.attempts {
		for _, a := range attempts {
			if a.status == status && !a.sent.Before(from) && a.answered.Before(to) {
				took = append(took, a.answered.Sub(a.sent))
			}
		}
	}
	slices.Sort(took)
	return took
}

func at(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// TestOutage cuts Pub/Sub off for what would be minutes of a site of 100
// nodes, thirty times as fast, kills the gateway twice meanwhile, and restores
// the line. Every reading that its node heard anything about must be there,
// once, with its original time, and live readings must not notice the backlog.
func TestOutage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 17 s")
	}
	server := startPubSub(t)
	line, err := proxytest.New(t.Context(), server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	const timeout = 2 * time.Second
	p := newProcess(t, line.Address(), "PUBLISH_TIMEOUT="+timeout.String())
	p.start()
	nodes := startLoad(p.url(), 100, time.Second)
	more := func(n, status int) {
		t.Helper()
		before := nodes.answers(status)
		waitFor(t, fmt.Sprintf("%d answers %d", n, status), func() bool { return nodes.answers(status) >= before+n })
	}

	began := time.Now()
	more(200, http.StatusOK)
	cutAt := time.Now()
	line.SetMode(proxytest.Stall)
	more(200, http.StatusInternalServerError)
	_ = p.end(syscall.SIGKILL)
	p.start()
	more(200, http.StatusInternalServerError)
	line.SetMode(proxytest.Refuse)
	_ = p.end(syscall.SIGKILL)
	p.start()
	waitFor(t, "Pub/Sub is known to be away", func() bool { h := p.health(); return h != nil && !h.Publishing.Up })
	known := time.Now()
	more(100, http.StatusInternalServerError)
	backlog := p.health().Outbox.Readings
	restored := time.Now()
	line.SetMode(proxytest.Forward)
	// A machine that is so busy that it cannot take the readings of 100 nodes beside the
	// backlog gets those of ten.
	calm := time.AfterFunc(time.Minute, func() { close(nodes.fewer) })
	defer calm.Stop()
	waitFor(t, fmt.Sprintf("the backlog of %d drains", backlog), func() bool {
		h := p.health()
		return h != nil && h.Publishing.Up && h.Outbox.Readings == 0
	})
	drained := time.Now()
	more(10, http.StatusOK)
	nodes.end()
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("the gateway ended with %v", err)
	}

	// Which identities of each message are stored.
	stored := map[[2]string]map[time.Time]bool{}
	for _, m := range server.Messages() {
		data, err := wire.DecodeData(m.Data, m.PublishTime)
		if err != nil {
			t.Fatal(err)
		}
		key := [2]string{data.Reading.NodeID, data.Reading.MessageID}
		if stored[key] == nil {
			stored[key] = map[time.Time]bool{}
		}
		stored[key][data.Reading.Time] = true
	}
	answered, refusals, unanswered := 0, 0, 0
	for node, attempts := range nodes.attempts {
		first := map[string]attempt{}
		heard := map[string]time.Time{}
		for _, a := range attempts {
			if _, ok := first[a.id]; !ok {
				first[a.id] = a
			}
			switch _, ok := heard[a.id]; {
			case a.status == 0:
				unanswered++
			case a.status != 200 && a.status != 500:
				t.Fatalf("a node was answered %d", a.status)
			case !ok:
				heard[a.id] = a.answered
			}
			if a.status == 500 {
				refusals++
			}
		}
		for id, until := range heard {
			answered++
			times := stored[[2]string{node, id}]
			if len(times) != 1 {
				t.Errorf("reading %s of %s is stored %d times", id, node, len(times))
			}
			for taken := range times {
				if taken.Before(reading.TruncateTime(first[id].sent)) || taken.After(until) {
					t.Errorf("reading %s of %s, sent at %s and first answered at %s, is stored as of %s", id, node, first[id].sent, until, taken)
				}
			}
		}
	}
	if refusals < 500 || backlog < 300 || unanswered == 0 {
		t.Errorf("%d refusals, backlog of %d, %d unanswered: the test did not test", refusals, backlog, unanswered)
	}
	before := nodes.took(200, began, cutAt)
	down := nodes.took(500, known, restored)
	during := nodes.took(200, restored, drained)
	t.Logf("%d readings answered, %d refusals, %d attempts without an answer; backlog of %d drained in %s",
		answered, refusals, unanswered, backlog, drained.Sub(restored))
	t.Logf("live answers before: p50 %s p99 %s; while the backlog drained: p50 %s p99 %s (%d); while Pub/Sub was away: p50 %s p99 %s",
		at(before, 0.5), at(before, 0.99), at(during, 0.5), at(during, 0.99), len(during), at(down, 0.5), at(down, 0.99))
	// Behind the backlog a live reading would wait for half of the time that it
	// takes to drain, whatever the machine; and without knowing that Pub/Sub is
	// away, for the timeout.
	if limit := at(before, 0.5) + max(20*time.Millisecond, drained.Sub(restored)/5); at(during, 0.5) > limit {
		t.Errorf("half of the live readings took over %s beside the backlog, over %s", at(during, 0.5), limit)
	}
	if len(down) == 0 || at(down, 0.5) >= timeout {
		t.Errorf("half of the answers took over %s though Pub/Sub was known to be away", at(down, 0.5))
	}
}
