package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/proxytest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
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
	_ = os.Unsetenv("PUBSUB_EMULATOR_HOST") // of whoever runs the tests: each says which it means
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
	port := tooltest.FreePort(tb)
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
	must.Do(p.t, p.command.Start())
	must.Eventually(p.t, "the gateway answers", func() bool { return p.health() != nil })
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

// send sends a reading and returns the status of its answer.
func (p *process) send(id string) int {
	p.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"node_id":"n1","temperature":21,"humidity":40}`, id)
	response, err := http.Post(p.url()+"/api/v1/message", "application/json", strings.NewReader(body))
	must.Do(p.t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

// health is what the gateway says of itself; nil for no answer.
func (p *process) health() *gateway.Health {
	h, err := doctor.Health(context.WithoutCancel(p.t.Context()), p.url())
	if err != nil {
		return nil
	}
	return &h.Health
}

// load is a site of nodes, each of which sends a reading a second. Half of the nodes send
// a reading that was not published again, before their next one. The other half, simpler
// devices, never do.
type load struct {
	stop  chan struct{}
	nodes sync.WaitGroup

	mu       sync.Mutex
	answered map[int]int          // requests by status; 0 for no answer
	readings map[[2]string]*heard // by node and message id
}

// heard is when a node sent a reading first, and when it first had an answer; zero for
// none yet.
type heard struct{ sent, answered time.Time }

func startLoad(url string, count int) *load {
	l := &load{stop: make(chan struct{}), answered: map[int]int{}, readings: map[[2]string]*heard{}}
	client := &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: count}}
	for i := range count {
		l.nodes.Go(func() { l.node(client, url, fmt.Sprintf("node-%03d", i), i%2 == 0) })
	}
	return l
}

func (l *load) end() {
	close(l.stop)
	l.nodes.Wait()
}

func (l *load) node(client *http.Client, url, name string, retries bool) {
	for waiting := []string(nil); ; {
		select {
		case <-l.stop:
			return
		case <-time.After(time.Second/2 + rand.N(time.Second)):
		}
		waiting = append(waiting, fmt.Sprintf("%08x", rand.Uint32()))
		waiting = slices.DeleteFunc(waiting, func(id string) bool {
			return l.post(client, url, name, id) == http.StatusOK || !retries
		})
	}
}

func (l *load) post(client *http.Client, url, node, id string) (status int) {
	sent := time.Now()
	response, err := client.Post(url+"/api/v1/message", "application/json",
		strings.NewReader(fmt.Sprintf(`{"id":%q,"node_id":%q,"temperature":20,"humidity":40}`, id, node)))
	if err == nil {
		status = response.StatusCode
		_ = response.Body.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered[status]++
	h, ok := l.readings[[2]string{node, id}]
	if !ok {
		h = &heard{sent: sent}
		l.readings[[2]string{node, id}] = h
	}
	if status != 0 && h.answered.IsZero() {
		h.answered = time.Now()
	}
	return status
}

// answers counts those of a status.
func (l *load) answers(status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered[status]
}

// TestOutage cuts Pub/Sub off for what would be minutes of a site of 100
// nodes, thirty times as fast, kills the gateway twice meanwhile, and restores
// the line. Every reading that its node heard anything about must be there,
// once, with its original time. That new readings go before the backlog is shown by
// edge-gateway/gateway TestNewReadingsGoBeforeKeptOnes.
func TestOutage(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	server := startPubSub(t)
	line := must.Get(proxytest.New(t.Context(), server.Addr))(t)
	t.Cleanup(line.Close)
	p := newProcess(t, line.Address(), "PUBLISH_TIMEOUT=2s")
	p.start()
	nodes := startLoad(p.url(), 100)
	more := func(n, status int) {
		t.Helper()
		before := nodes.answers(status)
		must.Eventually(t, fmt.Sprintf("%d answers %d", n, status), func() bool { return nodes.answers(status) >= before+n })
	}
	kill := func() {
		_ = p.end(syscall.SIGKILL)
		p.start()
	}
	more(200, http.StatusOK)
	line.SetMode(proxytest.Stall)
	more(200, http.StatusInternalServerError)
	kill()
	more(200, http.StatusInternalServerError)
	line.SetMode(proxytest.Refuse)
	kill()
	must.Eventually(t, "300 readings in the outbox", func() bool {
		h := p.health()
		return h != nil && !h.Publishing.Up && h.Outbox.Readings >= 300
	})
	line.SetMode(proxytest.Forward)
	more(10, http.StatusOK)
	nodes.end() // a busy machine may not be able to take their readings beside the backlog
	must.Eventually(t, "the backlog to drain", func() bool {
		h := p.health()
		return h != nil && h.Publishing.Up && h.Outbox.Readings == 0
	})
	must.Do(t, p.end(syscall.SIGTERM))

	stored := map[[2]string]map[time.Time]bool{} // times of each message
	for _, m := range server.Messages() {
		data := must.Get(wire.DecodeData(m.Data, m.PublishTime))(t)
		key := [2]string{data.Reading.NodeID, data.Reading.MessageID}
		if stored[key] == nil {
			stored[key] = map[time.Time]bool{}
		}
		stored[key][data.Reading.Time] = true
	}
	for key, h := range nodes.readings {
		if h.answered.IsZero() {
			continue
		}
		must.Equal(t, fmt.Sprintf("copies of reading %s", key), 1, len(stored[key]))
		for taken := range stored[key] {
			if taken.Before(reading.TruncateTime(h.sent)) || taken.After(h.answered) {
				t.Errorf("reading %s, sent at %s and first answered at %s, is stored as of %s", key, h.sent, h.answered, taken)
			}
		}
	}
	for status := range nodes.answered {
		if status != 0 && status != http.StatusOK && status != http.StatusInternalServerError {
			t.Errorf("a node was answered %d", status)
		}
	}
}
