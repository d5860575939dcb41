package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coldaisle.dev/edge-gateway/multicast"
)

// Kind is what keeps a node from its gateway.
type Kind string

// The kinds, as /metrics names them.
const (
	NotFound     Kind = "not_found"     // nobody answers to the name
	WrongAddress Kind = "wrong_address" // somebody else does
	Refused      Kind = "refused"       // nothing listens at the address
	Timeout      Kind = "timeout"       // nothing answers at the address
	Unreachable  Kind = "unreachable"   // there is no way to the address
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{NotFound, WrongAddress, Refused, Timeout, Unreachable} }

// CheckError is why a node would not reach the gateway.
type CheckError struct {
	Kind  Kind
	Cause error
}

// Error implements error.
func (e *CheckError) Error() string { return e.Cause.Error() }

// Unwrap gives the cause.
func (e *CheckError) Unwrap() error { return e.Cause }

// Times that a node would wait too.
const (
	askFor     = 4 * time.Second
	connectFor = 2 * time.Second
)

// Check does on an interface what a node does: it asks for the address (A) of the
// specified name, and opens a fresh TCP connection to the answer. hashicorp/mdns,
// which shares no line with our responder, is asked as well and must name no other
// address; where it cannot ask (see [Browse]) it is left out. The address must be one
// of own; nil for any.
func Check(ctx context.Context, i net.Interface, port int, own []netip.Addr) error {
	asking, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	var browsed Gateway
	var browseErr error
	var browsing sync.WaitGroup
	browsing.Go(func() { browsed, browseErr = Browse(asking, i) })
	addresses, err := Resolve(asking, i, Legacy)
	browsing.Wait()
	if err != nil {
		return &CheckError{NotFound, err}
	}
	if browseErr == nil && browsed.Host == Host {
		addresses = append(addresses, browsed.Address)
	} else if browseErr == nil || errors.Is(browseErr, ErrNotFound) {
		return &CheckError{NotFound, fmt.Errorf("%s: the service of %s: %w", i.Name, Host, ErrNotFound)}
	}
	if own != nil {
		for _, address := range addresses {
			if !slices.Contains(own, address) {
				return &CheckError{WrongAddress, fmt.Errorf("%s: %s is %s, which is another machine", i.Name, Host, address)}
			}
		}
	}
	return Connect(ctx, netip.AddrPortFrom(addresses[0], uint16(port))) //nolint:gosec // a port, from 1 to 65535
}

// Connect opens a fresh TCP connection, as a node does for each reading, and closes
// it.
func Connect(ctx context.Context, to netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: connectFor}).DialContext(ctx, "tcp", to.String())
	if err == nil {
		_ = conn.Close()
		return nil
	}
	kind := Unreachable
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		kind = Refused
	case ok && timeout.Timeout():
		kind = Timeout
	}
	return &CheckError{kind, fmt.Errorf("connect: %w", err)}
}

// Watcher checks again and again, for /health and /metrics.
type Watcher struct {
	port  int
	every time.Duration
	// holds reports whether this gateway is to have the name: then the address must
	// be its own.
	holds func() bool
	log   *slog.Logger

	failures *prometheus.CounterVec
	mu       sync.Mutex
	problem  string
}

// NewWatcher returns a watcher that has seen nothing yet.
func NewWatcher(port int, every time.Duration, holds func() bool, log *slog.Logger) *Watcher {
	w := &Watcher{port: port, every: every, holds: holds, log: log, failures: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "gateway", Name: "name_check_failures_total",
		Help: "Times that a node would not have reached a gateway by the specified name, by reason.",
	}, []string{"reason"})}
	for _, kind := range Kinds() {
		w.failures.WithLabelValues(string(kind))
	}
	return w
}

// Describe implements [prometheus.Collector].
func (w *Watcher) Describe(to chan<- *prometheus.Desc) { w.failures.Describe(to) }

// Collect implements [prometheus.Collector].
func (w *Watcher) Collect(to chan<- prometheus.Metric) { w.failures.Collect(to) }

// Problem is why nodes would not reach a gateway; empty for no reason.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Run checks until the context ends.
func (w *Watcher) Run(ctx context.Context) error {
	turns := time.NewTicker(w.every)
	defer turns.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-turns.C:
			w.round(ctx)
		}
	}
}

// round checks every interface, one after the other. What fails is tried once more:
// a question may get lost, and the name may just have changed hands.
func (w *Watcher) round(ctx context.Context) {
	interfaces, err := Interfaces()
	if err != nil {
		return
	}
	problem := ""
	for _, i := range interfaces {
		err := w.check(ctx, i)
		if err != nil {
			err = w.check(ctx, i)
		}
		if ctx.Err() != nil {
			return
		}
		if failed, ok := errors.AsType[*CheckError](err); ok {
			w.failures.WithLabelValues(string(failed.Kind)).Inc()
			problem = failed.Error()
			break
		}
	}
	w.mu.Lock()
	before := w.problem
	w.problem = problem
	w.mu.Unlock()
	switch {
	case problem != "" && before != problem:
		w.log.WarnContext(ctx, "nodes do not reach the gateway by its name", "error", problem)
	case problem == "" && before != "":
		w.log.InfoContext(ctx, "nodes reach the gateway by its name again")
	}
}

func (w *Watcher) check(ctx context.Context, i net.Interface) error {
	var own []netip.Addr
	if w.holds() {
		own = ownAddresses()
	}
	return Check(ctx, i, w.port, own)
}

// ownAddresses are this machine's IPv4 addresses: hashicorp/mdns hears the answers
// of all interfaces.
func ownAddresses() []netip.Addr {
	own := []netip.Addr{}
	interfaces, _ := Interfaces()
	for _, i := range interfaces {
		for _, p := range multicast.Prefixes(i) {
			own = append(own, p.Addr())
		}
	}
	return own
}
