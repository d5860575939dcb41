package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/proxytest"
	"coldaisle.dev/shared/pubsubtest"
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

// TestKilledInAnOutage kills a gateway whose line to Pub/Sub hangs, and then refuses, and has a node
// send again what was kept: it is delivered with the time that it had first, and under no other.
func TestKilledInAnOutage(t *testing.T) {
	t.Parallel()
	server := startPubSub(t)
	line := must.Get(proxytest.New(t.Context(), server.Addr))(t)
	t.Cleanup(line.Close)
	p := newProcess(t, line.Address())
	sent := reading.TruncateTime(time.Now())
	var answered time.Time
	for _, mode := range []proxytest.Mode{proxytest.Stall, proxytest.Refuse} {
		line.SetMode(mode)
		p.start()
		must.Equal(t, "answered", http.StatusInternalServerError, p.send("a1"))
		if answered.IsZero() {
			answered = time.Now()
		}
		_ = p.end(syscall.SIGKILL)
	}
	line.SetMode(proxytest.Forward)
	p.start()
	must.Eventually(t, "the backlog to drain", func() bool {
		h := p.health()
		return h != nil && h.Publishing.Up && h.Outbox.Readings == 0
	})
	times := map[time.Time]bool{}
	for _, m := range server.Messages() {
		if data := must.Get(wire.DecodeData(m.Data, m.PublishTime))(t); data.Reading.MessageID == "a1" {
			times[data.Reading.Time] = true
		}
	}
	must.Equal(t, "times under which it is delivered", 1, len(times))
	for taken := range times {
		if taken.Before(sent) || taken.After(answered) {
			t.Errorf("sent at %s and first answered at %s, it is delivered as of %s", sent, answered, taken)
		}
	}
}

const (
	testProject = "site"
	testTopic   = "data"
)

func startPubSub(tb testing.TB) *pstest.Server {
	tb.Helper()
	server := pubsubtest.Start(tb)
	pubsubtest.Topics(tb, server, testProject, testTopic)
	return server
}
