package netnstest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// cloud is an API that shows what a watch reads. Nothing is published to it: while all is well
// it says that each sensor's newest reading is of now.
type cloud struct {
	mu      sync.Mutex
	frozen  time.Time // of the newest readings, when it gets none any more
	late    bool
	beats   int
	read    int // the last change that was asked for after
	changes []map[string]any
	now     map[string]any // the incident
}

func (c *cloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cloud) tell(event string, calls bool, state string, start time.Time) {
	c.set(func() {
		c.now = map[string]any{
			"id": 1, "room_id": 1, "room_name": "Hall A", "cause": "too_hot", "severity": "critical", "phase": "actual", "state": state, "start_time": start,
			"worst": map[string]any{"reason": "Temperature above 30.0 °C"},
		}
		if state == "over" {
			c.now["end_time"] = time.Now()
		}
		c.changes = append(c.changes, map[string]any{"number": len(c.changes) + 1, "event": event, "calls": calls, "at": start, "incident_id": 1})
	})
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any = []any{}
	switch r.URL.Path {
	case "/api/v1/overview":
		newest := c.frozen
		if newest.IsZero() {
			newest = time.Now()
		}
		answer = map[string]any{
			"rooms":   []any{map[string]any{"id": 1, "name": "Hall A"}},
			"sensors": []any{map[string]any{"id": "n1", "name": "Rack 1", "room_id": 1, "timestamp": newest}},
			"probe":   map[string]any{"late": c.late},
		}
	case "/api/v1/rules":
		answer = []any{map[string]any{"id": 1, "version": 1, "quantity": "temperature", "direction": "above", "limit": 30, "severity": "critical", "enabled": true}}
	case "/api/v1/watches/heartbeat":
		c.beats++
		w.WriteHeader(http.StatusNoContent)
		return
	case "/api/v1/incidents/changes":
		after, _ := strconv.Atoi(r.URL.Query().Get("after"))
		c.read = max(c.read, after)
		if after >= 0 && after == len(c.changes) {
			c.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			c.mu.Lock()
		}
		part := []any{}
		for i := max(after, 0); after >= 0 && i < len(c.changes); i++ {
			c.changes[i]["incident"] = c.now
			part = append(part, c.changes[i])
		}
		answer = map[string]any{"changes": part, "next": len(c.changes)}
	case "/api/v1/incidents":
		if c.now != nil && c.now["state"] != "over" {
			answer = []any{c.now}
		}
	case "/api/v1/incidents/1":
		answer = c.now
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestWatchAlone loses the uplink, has a service that is late, and one that gets no readings,
// before a room becomes hot, meanwhile, and when the service has told it: the real programs tell
// that once, on site unless the service did, and once that it is over, when the service does.
func TestWatchAlone(t *testing.T) {
	t.Parallel()
	if !tooltest.Nightly() {
		t.Skip("takes minutes: NIGHTLY=1")
	}
	cases := map[string][2]string{}
	for _, failure := range []string{"uplink cut", "late", "publishing broken"} {
		for _, phase := range []string{"before", "while it warms", "known"} {
			cases[failure+" "+phase] = [2]string{failure, phase}
		}
	}
	for name, c := range cases {
		failure, known := c[0], c[1] == "known"
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine, outside := newHost(t), newHost(t)
			cable(machine, "wan0", "10.66.0.2/24", outside, "10.66.0.1/24")
			service := &cloud{}
			var listener net.Listener
			var err error
			outside.inside(func() { listener, err = net.Listen("tcp", "10.66.0.1:80") }) //nolint:noctx // a test's
			must.Do(t, err)
			server := &http.Server{Handler: service, ReadHeaderTimeout: time.Minute}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })

			folder := t.TempDir()
			socket := filepath.Join(must.Get(os.MkdirTemp("", "live"))(t), "socket") //nolint:usetesting // a short path
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(socket)) })
			machine.startGateway("LIVE_SOCKET="+socket, "MDNS=false")
			written := filepath.Join(folder, "told")
			config := filepath.Join(folder, "watch.yaml")
			must.Do(t, os.WriteFile(filepath.Join(folder, "key"), []byte("cold_key"), 0o600))
			must.Do(t, os.WriteFile(config, fmt.Appendf(nil, "api: http://10.66.0.1\nkey_file: %s/key\nstate: %s\ngateway: %s\nsteps:\n"+
				"  - {name: a, command: [/bin/sh, -c, 'cat >> \"$0\"; echo >> \"$0\"', %s]}\n", folder, folder, socket, written), 0o600))
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			var log logtest.Buffer
			watch := machine.command(ctx, nil, gatewayProgram(t), "watch", "--config", config)
			watch.Stderr = &log
			post := func(celsius float64) {
				body := fmt.Sprintf(`{"id":"%d","node_id":"n1","temperature":%g,"humidity":40}`, time.Now().UnixNano(), celsius)
				_, _ = machine.says(nil, "curl", "--silent", "--max-time", "10", "--data", body, fmt.Sprintf("http://127.0.0.1:%d/api/v1/message", port))
			}
			must.Eventually(t, "the gateway hears", func() bool { post(22); return strings.Contains(curlNodes(machine), `"n1"`) })
			must.Do(t, watch.Start())
			t.Cleanup(func() {
				stop()
				_ = watch.Wait()
				if t.Failed() {
					t.Logf("log of the watch:\n%s", log.String())
				}
			})
			must.Eventually(t, "a heartbeat", func() bool { service.mu.Lock(); defer service.mu.Unlock(); return service.beats > 0 })
			told := func() (starts, ends int) {
				text, _ := os.ReadFile(written) //nolint:gosec // a test's
				return strings.Count(string(text), `"event":"start"`), strings.Count(string(text), `"event":"end"`)
			}
			celsius := 22.0
			warm := func() { celsius = min(40, celsius+2); post(celsius) }
			began := time.Now()
			switch {
			case known:
				for celsius < 40 {
					warm()
				}
				service.tell("started", true, "open", began)
				must.Eventually(t, "the service's is told", func() bool { starts, _ := told(); return starts == 1 })
			case c[1] == "while it warms":
				warm()
				warm()
			}
			began = time.Now()
			switch failure {
			case "uplink cut":
				machine.ip("link", "set", "wan0", "down")
			case "late":
				service.set(func() { service.frozen, service.late = began, true })
			default:
				service.set(func() { service.frozen = began })
			}
			must.Eventually(t, "it is judged on site", func() bool {
				warm()
				starts, _ := told()
				return starts > 0 && strings.Contains(log.String(), "judging on site")
			})
			if text, _ := os.ReadFile(written); strings.Contains(string(text), "CRITICAL: Hall A: too hot (judged on site)") == known { //nolint:gosec // a test's
				t.Errorf("told %s", text)
			}
			t.Logf("judged on site %v after the failure", time.Since(began).Round(time.Second)) // 60 s at most: TestAway
			service.set(func() { service.frozen, service.late = time.Time{}, false })
			if !known {
				service.tell("started", true, "open", began)
			}
			machine.ip("link", "set", "wan0", "up")
			must.Eventually(t, "it reads on", func() bool {
				service.mu.Lock()
				defer service.mu.Unlock()
				return service.read == 1 && strings.Contains(log.String(), "the service is back")
			})
			service.tell("ended", false, "over", began)
			must.Eventually(t, "the end is told", func() bool { post(22); _, ends := told(); return ends > 0 })
			if starts, ends := told(); starts != 1 || ends != 1 {
				t.Errorf("told %d starts and %d ends", starts, ends)
			}
		})
	}
}

func curlNodes(h *host) string {
	out, _ := h.says(nil, "curl", "--silent", "--max-time", "5", fmt.Sprintf("http://127.0.0.1:%d/api/v1/nodes", port))
	return out
}
