package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// patient is how long a node may take that is in order, however busy the machine is.
const patient = 10 * time.Minute

// examine checks the node that begin starts with the address of the gateway that it is
// to call. The node's context ends with the examination.
func examine(t *testing.T, interval time.Duration, begin func(ctx context.Context, address string) error) []finding {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return nil
	}
	ctx, stop := context.WithTimeout(t.Context(), patient)
	defer stop()
	var node sync.WaitGroup
	node.Go(func() {
		err := begin(ctx, listener.Addr().String())
		must.Hold(t, err == nil || ctx.Err() != nil, "the node ended: %v", err)
	})
	found, err := check(ctx, listener, interval, time.Now)
	must.Fail(t, "examined", err, nil)
	must.Hold(t, ctx.Err() == nil, "the examination did not come to its end")
	stop()
	node.Wait()
	return found
}

// inOrder wants no fault, and no note where there should be none.
func inOrder(t *testing.T, found []finding, notes bool) {
	t.Helper()
	for _, f := range found {
		must.Hold(t, f.severity != isWrong && (f.severity != isNote || notes), "%s %s", f.severity, f.text)
	}
	t.Logf("%+v", found)
}

func TestMicroPythonNodeIsInOrder(t *testing.T) {
	t.Parallel()
	tooltest.Program(t, "micropython") // a test is skipped from its own goroutine alone
	found := examine(t, 300*time.Millisecond, func(ctx context.Context, address string) error {
		command := micropython(t, gatewayAt(address)+"INTERVAL_S = 0.3\n") //nolint:contextcheck // it is killed below
		var console bytes.Buffer
		command.Stdout, command.Stderr = &console, &console
		if err := command.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		_ = command.Process.Kill()
		_ = command.Wait()
		t.Log(console.String())
		return nil
	})
	inOrder(t, found, false)
}

func TestSimulatedNodeIsInOrder(t *testing.T) {
	t.Parallel()
	const speed = 150
	found := examine(t, nodesim.Interval/speed, func(ctx context.Context, address string) error {
		simulation, err := nodesim.New(nodesim.Config{Gateway: "http://" + address, Nodes: 1, Speed: speed, Clock: time.Now})
		if err != nil {
			return err
		}
		return simulation.Run(ctx)
	})
	inOrder(t, found, true) // it keeps four readings and sends no age_s
}

// faulty is a small node that is in order but for what is set.
type faulty struct {
	base         string
	client       *http.Client
	interval     time.Duration
	registers    int // attempts
	beats        bool
	newIDs       bool // for a reading that is sent again
	oneID        bool
	broken       string // a measurement in place of one
	stubborn     bool   // sends what was rejected until it is taken
	milliseconds bool   // in age_s
	address      string // in place of the node's
	forgetful    bool   // sends nothing again
	trusting     bool   // looks at the status alone
	dropping     int    // forgets what was answered so
	frozen       bool   // its age_s is always the same
	path         string // in place of heartbeat
}

func inOrderNode() faulty {
	return faulty{
		interval: 20 * time.Millisecond, registers: 6, beats: true,
		client: &http.Client{Timeout: 10 * time.Second}, address: "192.168.1.20", path: "heartbeat",
	}
}

func (f faulty) post(ctx context.Context, path, body string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.base+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	response, err := f.client.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	content, _ := io.ReadAll(response.Body)
	var answer struct{ Kept bool }
	if err := json.Unmarshal(content, &answer); err != nil && !f.trusting {
		return 0
	}
	if answer.Kept {
		return http.StatusOK
	}
	return response.StatusCode
}

type waiting struct {
	id, values string
	at         time.Time
}

func (f faulty) run(ctx context.Context, address string) error {
	f.base = "http://" + address + "/api/v1/"
	for range f.registers {
		if f.post(ctx, "register", fmt.Sprintf(`{"node_id":"n1","ip_addr":%q}`, f.address)) == http.StatusCreated {
			break
		}
	}
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	var kept []waiting
	for count := 0; ctx.Err() == nil; count++ {
		id := strconv.Itoa(count)
		if f.oneID {
			id = "1"
		}
		values := fmt.Sprintf(`"temperature":%.1f,"humidity":41`, 20+float64(count%50)/10)
		if f.broken != "" && count%5 == 4 {
			values = f.broken
		}
		kept = append(kept, waiting{id, values, time.Now()})
		var left []waiting
		for i, m := range kept {
			age := time.Since(m.at).Seconds()
			if f.milliseconds {
				age = 1e6 + age*1000
			}
			if f.frozen {
				age = 600
			}
			body := fmt.Sprintf(`{"id":%q,"node_id":"n1",%s}`, m.id, m.values)
			if i < len(kept)-1 {
				body = fmt.Sprintf(`{"id":%q,"node_id":"n1",%s,"age_s":%.3f}`, m.id, m.values, age)
			}
			status := f.post(ctx, "message", body)
			if status == http.StatusBadRequest && !f.stubborn || status == http.StatusOK || f.dropping > 0 && status == f.dropping || f.forgetful {
				continue
			}
			if f.newIDs {
				m.id += "-again"
			}
			left = append(left, m)
		}
		kept = left
		if f.beats && count%2 == 1 {
			f.post(ctx, f.path, `{"node_id":"n1"}`)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func TestWrongNodesGetFindings(t *testing.T) {
	t.Parallel()
	var examined sync.WaitGroup
	for name, c := range map[string]struct {
		change func(*faulty)
		say    string // empty: nothing is wrong
	}{
		"in order":                  {func(*faulty) {}, ""},
		"gives up registration":     {func(f *faulty) { f.registers = 2 }, "gave up registration after 2 attempts without an answer: a node makes five retries"},
		"does not register":         {func(f *faulty) { f.registers = 0 }, "sent a reading without having called /api/v1/register"},
		"registers without address": {func(f *faulty) { f.address = "" }, "/api/v1/register was answered 400 ip_addr is required"},
		"new id for a retry":        {func(f *faulty) { f.newIDs = true }, "never sent a reading again under its id that was answered 408, 429, 500: it is lost, or stored twice"},
		"forgets what failed":       {func(f *faulty) { f.forgetful = true }, "a node that hears nothing cannot know, and sends the same message again"},
		"one id for all":            {func(f *faulty) { f.oneID = true }, `message id "1" came with 20.1 °C and 41 %, and before with 20.0 °C and 41 %: every reading needs an id of its own`},
		"not a number":              {func(f *faulty) { f.broken = `"temperature":nan,"humidity":41` }, "sent a message that the gateway rejects: the body is not JSON"},
		"a disconnected DS18B20":    {func(f *faulty) { f.broken = `"temperature":-127,"humidity":41` }, "rejects: temperature must be between -40 and 125 degrees Celsius: got -127"},
		"null":                      {func(f *faulty) { f.broken = `"temperature":null,"humidity":null` }, "rejects: temperature is required"},
		"no heartbeat":              {func(f *faulty) { f.beats = false }, "readings and no heartbeat"},
		"heartbeat elsewhere":       {func(f *faulty) { f.path = "alive" }, "called POST /api/v1/alive, which the gateway does not have (404 Not found)"},
		"impatient":                 {func(f *faulty) { f.client = &http.Client{Timeout: 2 * time.Second} }, "did not wait 4.5s for an answer: the gateway may take 4 s"},
		"stubborn":                  {func(f *faulty) { f.stubborn = true }, "times that was answered 400: it will be rejected for ever, so drop it and go on"},
		"believes any page":         {func(f *faulty) { f.trusting = true }, "never sent a reading again under its id that was answered 200, 302 with a web page: only JSON with its message_id is the gateway's answer"},
		"believes a 404":            {func(f *faulty) { f.trusting, f.dropping = true, 404 }, "answered 200, 302, 404 with a web page"},
		"believes a proxy":          {func(f *faulty) { f.trusting, f.dropping = true, 503 }, "answered 200, 302, 503 with a web page"},
		"drops what was slow":       {func(f *faulty) { f.dropping = 408 }, "never sent a reading again under its id that was answered 408: it is lost"},
		"an age of its own":         {func(f *faulty) { f.frozen = true }, "age_s is the seconds from the measurement to this request"},
		"age in milliseconds":       {func(f *faulty) { f.milliseconds = true }, "rejects: age_s must be between 0 and 3600 seconds"},
		"never rests":               {func(f *faulty) { f.interval = time.Millisecond }, "intervals of 1s: the gateway answers 429 beyond 50 a second"},
	} {
		// All at once, however few processors there are: they mostly wait.
		examined.Go(func() {
			node := inOrderNode()
			c.change(&node)
			interval := node.interval
			if name == "never rests" {
				interval = time.Second
			}
			// A node is judged by when it calls, which a busy machine may make wrong: it is
			// examined again, and once must be told what is so.
			text := ""
			for range 4 {
				var wrong []string
				for _, f := range examine(t, interval, node.run) {
					if f.severity == isWrong {
						wrong = append(wrong, f.text)
					}
				}
				text = strings.Join(wrong, "\n")
				if c.say == "" && text == "" || c.say != "" && strings.Contains(text, c.say) && len(wrong) <= 3 {
					return
				}
			}
			t.Errorf("%s: was told\n%s\nwant %q and little else", name, text, c.say)
		})
	}
	examined.Wait()
}

// TestTwoBoardsWithOneID has two machines call with one node_id.
func TestTwoBoardsWithOneID(t *testing.T) {
	t.Parallel()
	e := newExamination(http.NotFoundHandler(), time.Second, time.Now)
	for _, host := range []string{"192.168.1.20", "192.168.1.20", "192.168.1.21"} {
		request := httptest.NewRequest(http.MethodPost, "/api/v1/heartbeat", strings.NewReader(`{"node_id":"n1"}`))
		request.RemoteAddr = host + ":40000"
		e.ServeHTTP(httptest.NewRecorder(), request)
	}
	must.Contain(t, "the findings", fmt.Sprint(e.findings()), "n1 calls from 192.168.1.20 and from 192.168.1.21")
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := run(t.Context(), []string{"-interval", "0s"}, &out, time.Now)
	must.Contain(t, "an interval of nothing", fmt.Sprint(err), "over 0")
	must.Equal(t, "it listens nowhere", false, run(t.Context(), []string{"-listen", "nowhere"}, &out, time.Now) == nil)
	ended, end := context.WithCancel(t.Context())
	end()
	err = run(ended, []string{"-listen", "127.0.0.1:0"}, &out, time.Now)
	must.Hold(t, err != nil && !errors.Is(err, context.Canceled), "without a node: %v\n%s", err, out.String())
}

// TestSilentNode moves the clock, with a node that calls once.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	e := newExamination(http.NotFoundHandler(), time.Second, func() time.Time { return now })
	must.Equal(t, "over before a node called", false, e.over())
	e.decide(httptest.NewRequest(http.MethodPost, "/api/v1/heartbeat", nil), message{NodeID: "n1"})
	now = now.Add(29 * time.Second)
	must.Equal(t, "over after 29 s of silence", false, e.over())
	now = now.Add(2 * time.Second)
	must.Equal(t, "over after 31 s of silence", true, e.over())
	must.Contain(t, "the findings", fmt.Sprint(e.findings()), "fell silent: nothing came for 31s, after 1 requests")
	recorder := httptest.NewRecorder()
	e.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/api/v1/alive", http.NoBody))
	must.Equal(t, "answered", http.StatusNotFound, recorder.Code)
}
