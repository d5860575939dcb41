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

	"coldaisle.dev/run/tools/soak/cluster"
)

// faults breaks one part of the plant after the other and mends it again.
type faults struct {
	plant  *cluster.Plant
	outage time.Duration // of what hangs and is cut
	chance *rand.Rand
	clock  func() time.Time
	say    func(format string, values ...any)

	mu       sync.Mutex
	done     map[string]int
	spans    []faultSpan
	failures []error // of mending
}

// faultSpan is when something was broken.
type faultSpan struct{ from, to time.Time }

// fault is one way of breaking the plant; it returns when all is mended.
type fault struct {
	name string
	play func(ctx context.Context) error
}

func newFaults(p *cluster.Plant, outage time.Duration, seed uint64, clock func() time.Time, say func(string, ...any)) *faults {
	return &faults{plant: p, outage: outage, chance: rand.New(rand.NewPCG(seed, 9)), clock: clock, say: say, done: map[string]int{}} //nolint:gosec // an order, not a secret
}

const (
	// restartTime is what systemd and Cloud Run take to start another.
	restartTime = time.Second
	// calmBefore is how long before the end nothing is broken any more, so that
	// instances which were just started have something to do.
	calmBefore = 5 * time.Second
)

// all lists the faults. They spare the first instance of everything: a leak is
// to show in it.
func (f *faults) all() []fault {
	mortal := f.plant.Gateways[len(f.plant.Gateways)-1]
	list := []fault{
		{"gateway killed", f.killed(mortal)},
		{"gateway restarted", f.restarted(mortal)},
		{"API killed", f.killed(f.plant.API.Instances[1])},
		{"API hangs", f.hangs(f.plant.API.Instances[1])},
		{"database crashes", f.databaseCrashes},
		{"database line silent", f.line(f.plant.Database.Line, cluster.Silent)},
		{"uplink silent", f.line(f.plant.PubSub.Sites, cluster.Silent)},
		{"uplink refused", f.line(f.plant.PubSub.Sites, cluster.Refused)},
		{"backend's Pub/Sub refused", f.line(f.plant.PubSub.Backend, cluster.Refused)},
		{"Pub/Sub renewed", f.plant.PubSub.Forget},
	}
	for _, function := range slices.Sorted(maps.Keys(f.plant.Functions)) {
		instance := f.plant.Functions[function].Instances[1]
		list = append(list,
			fault{function + " killed", f.killed(instance)},
			fault{function + " hangs", f.hangs(instance)})
	}
	return list
}

// run plays the faults in an order of chance, each once before any again, until
// a little before the end.
func (f *faults) run(ctx context.Context, every, lasting time.Duration) {
	end := f.clock().Add(lasting - calmBefore - f.outage)
	var waiting []fault
	for next := f.clock().Add(every); pause(ctx, next.Sub(f.clock())) && f.clock().Before(end); next = next.Add(every) {
		if len(waiting) == 0 {
			waiting = f.all()
			f.chance.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		}
		f.play(ctx, waiting[0])
		waiting = waiting[1:]
	}
}

// play breaks and mends, to the end even when the soak is over meanwhile.
func (f *faults) play(ctx context.Context, what fault) {
	from := f.clock()
	err := what.play(context.WithoutCancel(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[what.name]++
	f.spans = append(f.spans, faultSpan{from, f.clock()})
	if err != nil {
		f.failures = append(f.failures, fmt.Errorf("%s: %w", what.name, err))
		f.say("%s: %v", what.name, err)
	}
}

func (f *faults) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.spans)
}

func (f *faults) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.failures...)
}

// String lists what was broken how often.
func (f *faults) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.done)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, f.done[name]))
	}
	return strings.Join(parts, ", ")
}

// aftermath is how long after a fault calls may still fail of it.
const aftermath = 3 * time.Second

// explain reports whether something was broken during a call, or had been a
// moment before.
func (f *faults) explain(from, to time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.spans, func(s faultSpan) bool {
		return to.After(s.from) && from.Before(s.to.Add(aftermath))
	})
}

func (f *faults) killed(p *cluster.Process) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.End(syscall.SIGKILL); err != nil {
			return err
		}
		pause(ctx, restartTime)
		return p.Start(ctx)
	}
}

func (f *faults) restarted(p *cluster.Process) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.End(syscall.SIGTERM); err != nil {
			return err
		}
		return p.Start(ctx)
	}
}

// hangs stops a process without closing its connections: requests are taken
// and not answered.
func (f *faults) hangs(p *cluster.Process) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, f.outage)
		return p.Signal(syscall.SIGCONT)
	}
}

func (f *faults) databaseCrashes(ctx context.Context) error {
	if err := f.plant.Database.Crash(); err != nil {
		return err
	}
	pause(ctx, restartTime)
	return f.plant.Database.Recover(ctx)
}

func (f *faults) line(l *cluster.Line, state cluster.State) func(context.Context) error {
	return func(ctx context.Context) error {
		l.Set(state)
		pause(ctx, f.outage)
		l.Set(cluster.Whole)
		return nil
	}
}
