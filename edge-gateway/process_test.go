package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
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
		must.Hold(t, !taken.Before(sent) && !taken.After(answered),
			"sent at %s and first answered at %s, it is delivered as of %s", sent, answered, taken)
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

// memoryLimit is what a gateway with 1,000 nodes and full windows may take, in MB resident.
const memoryLimit = 64

// BenchmarkResidentMemory fills the windows of 1,000 nodes with ids of the
// longest kind in a gateway of its own and asks the system how large it is.
func BenchmarkResidentMemory(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("the system does not tell")
	}
	const nodes, readings, workers = 1000, 121, 64
	server := startPubSub(b)
	p := newProcess(b, server.Addr, "NODE_RATE=0", "PUBLISH_TIMEOUT=8s", "MDNS=true")
	p.start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	peak := 0.0
	for b.Loop() {
		var sending sync.WaitGroup
		began := time.Now()
		for w := range workers {
			sending.Go(func() {
				for i := range readings {
					for n := w; n < nodes; n += workers {
						body := fmt.Appendf(nil, `{"id":"%060d%04d","node_id":"node-%045d","temperature":%.1f,"humidity":%.1f}`,
							began.UnixNano(), i, n, 20+float64(i%97)/10, 40+float64(i%89)/10)
						response, err := client.Post(p.url()+"/api/v1/message", "application/json", bytes.NewReader(body))
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, response.Body)
						_ = response.Body.Close()
						if response.StatusCode != http.StatusOK {
							b.Errorf("answered %d", response.StatusCode)
							return
						}
					}
					if w == 0 {
						server.ClearMessages()
					}
				}
			})
		}
		sending.Wait()
		peak = max(peak, p.resident())
	}
	h := p.health()
	must.Hold(b, h != nil && h.Nodes == nodes, "the gateway says %+v", h)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(peak, "MB-resident")
	must.Hold(b, peak <= memoryLimit, "%.1f MB resident, want at most %d", peak, memoryLimit)
	_ = p.end(syscall.SIGTERM)
}

// startLimit is how long a gateway with a full outbox may take to answer.
const startLimit = 2 * time.Second

// BenchmarkFullOutbox starts a gateway whose outbox has the default size and is full of 1,000 nodes' readings: how long
// until it answers, with the windows of the last hour restored, until it has counted all of them, and how large it is.
// The best of the starts counts, for the machine may have other work.
func BenchmarkFullOutbox(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("the system does not tell")
	}
	dir := b.TempDir()
	readings := fillOutbox(b, dir)
	fastest, counted, peak := time.Hour, time.Hour, 0.0
	for b.Loop() {
		for range 5 {
			p := newProcess(b, "127.0.0.1:9", "OUTBOX_DIR="+dir) // where nobody takes anything
			began := time.Now()
			p.start()
			fastest = min(fastest, time.Since(began))
			for h := p.health(); h == nil || h.Outbox.Readings != readings; h = p.health() { // an estimate until all is read
				if time.Since(began) > 5*time.Minute {
					b.Fatalf("the gateway says %+v, want %d readings", h, readings)
				}
				time.Sleep(50 * time.Millisecond)
				peak = max(peak, p.resident())
			}
			counted = min(counted, time.Since(began))
			_ = p.end(syscall.SIGKILL)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(readings), "readings")
	b.ReportMetric(float64(fastest.Milliseconds()), "start-ms")
	b.ReportMetric(float64(counted.Milliseconds()), "counted-ms")
	b.ReportMetric(peak, "MB-resident")
	must.Hold(b, fastest <= startLimit && peak <= memoryLimit,
		"answers after %s with %.1f MB, want %s and %d MB", fastest, peak, startLimit, memoryLimit)
}

// fillOutbox fills an outbox with an hour of 1,000 nodes two days ago again and again, and
// then the last hour, and returns how many readings it holds.
func fillOutbox(b *testing.B, dir string) (readings int) {
	b.Helper()
	old, last := hourOfReadings(b, 48*time.Hour), hourOfReadings(b, 0)
	size := func(of [][]byte) (bytes int64) {
		for _, segment := range of {
			bytes += int64(len(segment))
		}
		return bytes
	}
	number := 0
	write := func(segments [][]byte, ago time.Duration) {
		written := time.Now().Add(-ago)
		for _, content := range segments {
			number++
			path := filepath.Join(dir, fmt.Sprintf("%016d.seg", number))
			must.Do(b, errors.Join(os.WriteFile(path, content, 0o600), os.Chtimes(path, written, written)))
		}
		readings += hourNodes * hourEach
	}
	for left := outbox.DefaultMaxBytes - size(last); left >= size(old); left -= size(old) {
		write(old, 48*time.Hour)
	}
	write(last, 0)
	return readings
}

const hourNodes, hourEach = 1000, 120

// hourOfReadings is the segments of an outbox that kept an hour of 1,000 nodes, so long ago.
func hourOfReadings(b *testing.B, ago time.Duration) (segments [][]byte) {
	b.Helper()
	dir := b.TempDir()
	clock := func() time.Time { return time.Now().Add(-ago) }
	box := must.Get(outbox.Open(dir, outbox.Options{Clock: clock}))(b)
	start := clock().Add(-hourEach * 30 * time.Second)
	var filling sync.WaitGroup
	for w := range 250 {
		filling.Go(func() {
			for i := range hourEach {
				for n := w; n < hourNodes; n += 250 {
					err := box.AppendAll([]outbox.Record{{Reading: reading.Reading{
						NodeID: fmt.Sprintf("rack-%03d-esp32", n), MessageID: fmt.Sprintf("%08x", uint32(n*hourEach+i)*2654435761), Time: start.Add(time.Duration(i) * 30 * time.Second),
						Temperature: 20 + float64((i*7+n)%97)/10, Humidity: 40 + float64((i*13+n)%89)/10,
					}}})[0]
					if err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	filling.Wait()
	must.Do(b, box.Close())
	files, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	for _, path := range files {
		content := must.Get(os.ReadFile(path))(b)
		segments = append(segments, content)
	}
	return segments
}

// resident is the physical memory of the process, in MB.
func (p *process) resident() float64 {
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid)))(p.t)
	for line := range bytes.Lines(status) {
		var kb float64
		if _, err := fmt.Sscanf(string(line), "VmRSS: %f kB", &kb); err == nil {
			return kb / 1024
		}
	}
	p.t.Fatal("the system does not tell the resident memory")
	return 0
}
