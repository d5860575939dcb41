package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/proxytest"
)

// chaos breaks one component of the cluster after the other and repairs it.
type chaos struct {
	cluster *cluster
	only    []string      // events by name; nil for all
	outage  time.Duration // how long a component hangs or is cut off
	rng     *rand.Rand
	clock   func() time.Time
	logf    func(format string, values ...any)

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

func newChaos(p *cluster, only []string, outage time.Duration, seed uint64, clock func() time.Time, logf func(string, ...any)) *chaos {
	return &chaos{cluster: p, only: only, outage: outage, rng: rand.New(rand.NewPCG(seed, 9)), clock: clock, logf: logf, done: map[string]int{}} //nolint:gosec // an order, not a secret
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
func (f *chaos) all() []event {
	expendable := f.cluster.Gateways[len(f.cluster.Gateways)-1]
	list := []event{
		{"gateway killed", f.kill(expendable)},
		{"gateway restarted", f.restart(expendable, syscall.SIGTERM, 0)},
		{"API killed", f.kill(f.cluster.API.Instances[1])},
		{"API hangs", f.hang(f.cluster.API.Instances[1])},
		{"database crashes", f.crashDatabase},
		{"database unreachable", f.setProxy(f.cluster.Database.Proxy, proxytest.Stall)},
		{"uplink stalled", f.setProxy(f.cluster.PubSub.GatewayProxy, proxytest.Stall)},
		{"uplink refused", f.setProxy(f.cluster.PubSub.GatewayProxy, proxytest.Refuse)},
		{"backend's Pub/Sub refused", f.setProxy(f.cluster.PubSub.ServiceProxy, proxytest.Refuse)},
	}
	for _, function := range slices.Sorted(maps.Keys(f.cluster.Functions)) {
		instance := f.cluster.Functions[function].Instances[1]
		list = append(list,
			event{function + " killed", f.kill(instance)},
			event{function + " hangs", f.hang(instance)})
	}
	return slices.DeleteFunc(list, func(e event) bool { return f.only != nil && !slices.Contains(f.only, e.name) })
}

// run runs the events in random order, each once before any is repeated, until a
// little before the end.
func (f *chaos) run(ctx context.Context, every, duration time.Duration) {
	end := f.clock().Add(duration - quietBeforeEnd - f.outage)
	var waiting []event
	for next := f.clock().Add(every); pause(ctx, next.Sub(f.clock())) && f.clock().Before(end); next = next.Add(every) {
		if len(waiting) == 0 {
			waiting = f.all()
			f.rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		}
		f.runEvent(ctx, waiting[0])
		waiting = waiting[1:]
	}
}

// runEvent runs an event to its end, even when the soak ends meanwhile.
func (f *chaos) runEvent(ctx context.Context, what event) {
	from := f.clock()
	err := what.run(context.WithoutCancel(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[what.name]++
	f.spans = append(f.spans, eventSpan{from, f.clock()})
	if err != nil {
		f.failures = append(f.failures, fmt.Errorf("%s: %w", what.name, err))
		f.logf("%s: %v", what.name, err)
	}
}

func (f *chaos) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.spans)
}

func (f *chaos) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.failures...)
}

// String lists how often each event ran.
func (f *chaos) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.done)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, f.done[name]))
	}
	return strings.Join(parts, ", ")
}

// graceAfter is how long after an event calls may still fail because of it.
const graceAfter = 3 * time.Second

// overlaps reports whether an event, or its grace period, overlapped with a call.
func (f *chaos) overlaps(from, to time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.spans, func(s eventSpan) bool {
		return to.After(s.from) && from.Before(s.to.Add(graceAfter))
	})
}

// restart ends a process by a signal and starts it again after a delay.
func (f *chaos) restart(p *processtest.Process, signal syscall.Signal, delay time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := p.End(signal); err != nil {
			return err
		}
		pause(ctx, delay)
		return p.Start(ctx)
	}
}

func (f *chaos) kill(p *processtest.Process) func(context.Context) error {
	return f.restart(p, syscall.SIGKILL, restartDelay)
}

// hang stops a process without closing its connections: it accepts requests and
// does not answer.
func (f *chaos) hang(p *processtest.Process) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, f.outage)
		return p.Signal(syscall.SIGCONT)
	}
}

func (f *chaos) crashDatabase(ctx context.Context) error {
	f.cluster.Database.Server.Crash()
	pause(ctx, restartDelay)
	return f.cluster.Database.Recover(ctx)
}

func (f *chaos) setProxy(l *proxytest.Proxy, mode proxytest.Mode) func(context.Context) error {
	return func(ctx context.Context) error {
		l.SetMode(mode)
		pause(ctx, f.outage)
		l.SetMode(proxytest.Forward)
		return nil
	}
}
