package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/proxytest"
)

// chaos breaks one component of the cluster after the other and repairs it.
type chaos struct {
	soak *soak
	rng  *rand.Rand

	mu       sync.Mutex
	done     map[string]int
	spans    []eventSpan
	failures []error // to repair
}

// eventSpan is when a component was broken.
type eventSpan struct{ from, to time.Time }

// event is one way of breaking the cluster; run returns when it is repaired.
type event struct {
	name string
	run  func(ctx context.Context) error
}

const (
	// restartDelay is the time that systemd and Cloud Run take to start another process.
	restartDelay = time.Second
	// quietBeforeEnd is the time without chaos events before the end, so that
	// instances that were just started get requests.
	quietBeforeEnd = 5 * time.Second
)

// all lists the events. None touches the first instance of a program: it runs from
// start to end, so that a leak shows in it.
func (c *chaos) all() []event {
	cluster := c.soak.cluster
	expendable := cluster.Gateways[len(cluster.Gateways)-1]
	list := []event{
		{"gateway killed", c.kill(expendable)},
		{"gateway restarted", c.restart(expendable, syscall.SIGTERM, 0)},
		{"API killed", c.kill(cluster.API.Instances[1])},
		{"API hangs", c.hang(cluster.API.Instances[1])},
		{"database crashes", c.crashDatabase},
		{"database unreachable", c.setProxy(cluster.Database.Proxy, proxytest.Stall)},
		{"uplink stalled", c.setProxy(cluster.gatewayProxy, proxytest.Stall)},
		{"uplink refused", c.setProxy(cluster.gatewayProxy, proxytest.Refuse)},
		{"backend's Pub/Sub refused", c.setProxy(cluster.serviceProxy, proxytest.Refuse)},
	}
	for _, function := range slices.Sorted(maps.Keys(cluster.Functions)) {
		instance := cluster.Functions[function].Instances[1]
		list = append(list,
			event{function + " killed", c.kill(instance)},
			event{function + " hangs", c.hang(instance)})
	}
	return slices.DeleteFunc(list, func(e event) bool { return c.soak.events != nil && !slices.Contains(c.soak.events, e.name) })
}

// run runs the events in random order, each once before any is repeated, until a
// little before the end.
func (c *chaos) run(ctx context.Context, every, duration time.Duration) {
	end := c.soak.clock().Add(duration - quietBeforeEnd - c.soak.outage)
	var waiting []event
	for next := c.soak.clock().Add(every); pause.For(ctx, next.Sub(c.soak.clock())) == nil && c.soak.clock().Before(end); next = next.Add(every) {
		if len(waiting) == 0 {
			waiting = c.all()
			c.rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		}
		c.runEvent(ctx, waiting[0])
		waiting = waiting[1:]
	}
}

// runEvent runs an event to its end, even when the soak ends meanwhile.
func (c *chaos) runEvent(ctx context.Context, what event) {
	from := c.soak.clock()
	err := what.run(context.WithoutCancel(ctx))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[what.name]++
	c.spans = append(c.spans, eventSpan{from, c.soak.clock()})
	if err != nil {
		c.failures = append(c.failures, fmt.Errorf("%s: %w", what.name, err))
		c.soak.logf("%s: %v", what.name, err)
	}
}

func (c *chaos) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// String lists how often each event ran, once all have ended.
func (c *chaos) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.done)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, c.done[name]))
	}
	return strings.Join(parts, ", ")
}

// graceAfter is how long after an event calls may still fail because of it.
const graceAfter = 3 * time.Second

// overlaps reports whether an event, or its grace period, overlapped with a call, once all have
// ended.
func (c *chaos) overlaps(from, to time.Time) bool {
	return slices.ContainsFunc(c.spans, func(s eventSpan) bool {
		return to.After(s.from) && from.Before(s.to.Add(graceAfter))
	})
}

// restart ends a process by a signal and starts it again after a delay.
func (c *chaos) restart(p *processtest.Process, signal syscall.Signal, delay time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := p.End(signal); err != nil {
			return err
		}
		_ = pause.For(ctx, delay)
		return p.Start(ctx)
	}
}

func (c *chaos) kill(p *processtest.Process) func(context.Context) error {
	return c.restart(p, syscall.SIGKILL, restartDelay)
}

// hang stops a process without closing its connections: it accepts requests and
// does not answer.
func (c *chaos) hang(p *processtest.Process) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		_ = pause.For(ctx, c.soak.outage)
		return p.Signal(syscall.SIGCONT)
	}
}

func (c *chaos) crashDatabase(ctx context.Context) error {
	database := c.soak.cluster.Database
	database.Server.Crash()
	_ = pause.For(ctx, restartDelay)
	return database.Recover(ctx)
}

func (c *chaos) setProxy(l *proxytest.Proxy, mode proxytest.Mode) func(context.Context) error {
	return func(ctx context.Context) error {
		l.SetMode(mode)
		_ = pause.For(ctx, c.soak.outage)
		l.SetMode(proxytest.Forward)
		return nil
	}
}
