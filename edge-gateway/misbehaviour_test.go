package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// TestMisbehaviour sets every kind of misbehaving client on a gateway, garbage,
// floods, duplicate ids, jumping clocks and the rest, beside nodes that do as
// they should: these must not notice, and whatever is published must be valid,
// of now, and told apart.
func TestMisbehaviour(t *testing.T) {
	t.Parallel()
	server := startPubSub(t)
	p := newProcess(t, server.Addr, "PUBLISH_TIMEOUT=8s") // the machine may be slow, which is not the matter here
	p.start()
	const nodes = 8
	began := time.Now()
	good, err := nodesim.New(nodesim.Config{Gateway: p.url(), Nodes: nodes, Speed: 100, Clock: time.Now}) // a reading every 300 ms
	must.Do(t, err)
	running := func(run func(context.Context)) (end func()) {
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		var wait sync.WaitGroup
		wait.Go(func() { run(ctx) })
		end = func() { stop(); wait.Wait() }
		t.Cleanup(end)
		return end
	}
	bad := &rogues{url: p.url() + "/api/v1/message"}
	endRogues := running(bad.run)
	endGood := running(func(ctx context.Context) { _ = good.Run(ctx) })
	reached := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain: %s; %s; %d refused", what, good.Stats(), bad.refused.Load())
			}
		}
	}
	reached("readings of the nodes", func() bool { return good.Stats().Accepted >= 10*nodes })
	reached("requests that are refused, and connections that are cut off", func() bool {
		metrics := p.metrics()
		return strings.Contains(metrics, `reason="malformed"`) && strings.Contains(metrics, `reason="invalid"`) &&
			strings.Contains(metrics, `reason="too_large"`) && bad.refused.Load() > 50
	})
	if s := good.Stats(); s.Rejected > 0 || s.Failed > 0 || s.HeartbeatsFailed > 0 || s.Registered != nodes {
		t.Errorf("nodes noticed the others' misbehaviour: %s", s)
	}
	// 100 at once and 50 a second are let through; the flood tries 1,000.
	reached("readings of the flood", func() bool {
		flood := 0
		for _, m := range server.Messages() {
			if bytes.Contains(m.Data, []byte(`"rogue-flood"`)) {
				flood++
			}
		}
		return flood >= 100
	})
	// A request that is sent slowly may keep the gateway for longer than its end may take,
	// and the flood a machine that is busy from getting well.
	endRogues()
	// Nothing is degraded, and the three are known that send valid readings.
	reached("the gateway to be healthy", func() bool { h := p.health(); return h != nil && h.Status == "healthy" && h.Nodes == nodes+3 })
	endGood()
	flood := 0
	seen := map[reading.Identity]reading.Reading{}
	for _, m := range server.Messages() {
		data, err := wire.DecodeData(m.Data, m.PublishTime)
		if err != nil {
			t.Fatalf("published %q: %v", m.Data, err)
		}
		r := data.Reading
		if err := data.Recent.Validate(); err != nil {
			t.Errorf("a window of %s: %v", r.NodeID, err)
		}
		if r.Time.Before(began.Add(-time.Second)) || r.Time.After(time.Now()) {
			t.Errorf("a reading of %s is of %s", r.NodeID, r.Time)
		}
		if other, ok := seen[r.Identity()]; ok && other != r {
			t.Errorf("one identity for %v and %v", other, r)
		}
		seen[r.Identity()] = r
		if r.NodeID == "rogue-flood" {
			flood++
		}
	}
	if most := 100 + int(60*time.Since(began).Seconds()); flood > most {
		t.Errorf("%d readings of the flood were taken in %s, want at most %d", flood, time.Since(began), most)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
}

// metrics is what the gateway tells Prometheus.
func (p *process) metrics() string {
	response, err := http.Get(p.url() + "/metrics")
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}
