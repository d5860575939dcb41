// Package announce makes the gateway found by multicast DNS (RFC 6762) and
// DNS-Based Service Discovery (RFC 6763): instance monitor-gateway of
// _http._tcp on host monitor-gateway.local, on every link with the addresses of
// that link.
//
// It is a responder of its own because of the nodes. hashicorp/mdns answers a
// unicast query without its question and with id 0, which lwIP and dig refuse;
// it tells upper from lower case, serves one interface, and neither probes nor
// announces. grandcat/zeroconf and brutella/dnssd were looked at too: the first
// has been silent for years and shares the last two faults, the second answers
// legacy queries with names of its own and does not see an interface that comes
// later. Messages are read and written by miekg/dns.
//
// The protocol is a state machine without clock, network or goroutine
// ([responder]); [Announcer] gives it all three.
package announce

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says what is announced.
type Config struct {
	Name string   // of the instance and of the host, a single label; monitor-gateway
	Port int      // where the service listens
	Text []string // of the TXT record, such as version=1.0
}

const (
	// pollEvery is how often the machine's interfaces are looked at.
	pollEvery = time.Second
	// reopenAfter is how long a socket that failed is left alone.
	reopenAfter = 5 * time.Second
	// idle is how long the responder sleeps with nothing to do.
	idle = time.Hour
)

// State is what is announced at the moment, as /health shows it.
type State struct {
	Instance string      `json:"instance"` // such as monitor-gateway._http._tcp.local
	Host     string      `json:"host"`     // such as monitor-gateway.local
	Links    []LinkState `json:"links"`
	Error    string      `json:"error,omitzero"` // why nothing is announced
}

// LinkState is one interface's part of it.
type LinkState struct {
	Interface string   `json:"interface"`
	Addresses []string `json:"addresses"`
	Phase     string   `json:"phase"`          // probing, announcing or ready
	Error     string   `json:"error,omitzero"` // why nodes on this link cannot find the gateway
}

// Announcer announces a gateway until it is told to stop.
type Announcer struct {
	config Config
	clock  func() time.Time
	log    *slog.Logger

	mu    sync.Mutex
	state State
}

// New returns an announcer. Nothing happens before [Announcer.Run].
func New(config Config, clock func() time.Time, log *slog.Logger) (*Announcer, error) {
	if config.Name == "" || len(config.Name) > 60 || strings.ContainsAny(config.Name, ". \\") {
		return nil, fmt.Errorf("announced name %q must be one label of at most 60 letters, digits and hyphens", config.Name)
	}
	if config.Port < 1 || config.Port > 65535 {
		return nil, fmt.Errorf("announced port %d must be between 1 and 65535", config.Port)
	}
	return &Announcer{config: config, clock: clock, log: log}, nil
}

// State returns what is announced at the moment.
func (a *Announcer) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := a.state
	state.Links = slices.Clone(state.Links)
	return state
}

// Run announces until the context ends, then says goodbye and returns nil. A
// machine without network, or one that refuses multicast, is tried again and
// again: its services go on meanwhile.
func (a *Announcer) Run(ctx context.Context) error {
	for failed := ""; ; {
		err := a.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.mu.Lock()
		a.state = State{Error: err.Error()}
		a.mu.Unlock()
		if failed != err.Error() {
			failed = err.Error()
			a.log.WarnContext(ctx, "nodes cannot find the gateway by mDNS", "error", failed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reopenAfter):
		}
	}
}

// serve answers on one socket until it fails or the context ends.
func (a *Announcer) serve(ctx context.Context) error {
	s, err := open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	received := make(chan packet)
	read := make(chan error, 1)
	var reader sync.WaitGroup
	reader.Go(func() { read <- s.receive(ctx, received) })
	// Closing the socket ends the reader.
	defer func() { cancel(); s.close(); reader.Wait() }()

	r := newResponder(a.config, seed(a.clock()), s.send)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	r.update(a.clock(), s.links())
	for {
		wake := time.NewTimer(a.untilNext(r))
		a.publish(ctx, r, s)
		select {
		case <-ctx.Done():
			r.goodbye()
			return nil
		case err := <-read:
			return err
		case p := <-received:
			r.receive(a.clock(), p)
		case <-poll.C:
			r.update(a.clock(), s.links())
		case <-wake.C:
			r.advance(a.clock())
		}
		wake.Stop()
	}
}

func (a *Announcer) untilNext(r *responder) time.Duration {
	next, ok := r.next()
	if !ok {
		return idle
	}
	return max(0, next.Sub(a.clock()))
}

// publish renews the state that others see, and logs what changed for them.
func (a *Announcer) publish(ctx context.Context, r *responder, s *socket) {
	state := State{Instance: strings.TrimSuffix(r.instance(), "."), Host: strings.TrimSuffix(r.host(), ".")}
	for _, l := range r.sorted() {
		state.Links = append(state.Links, LinkState{
			Interface: l.Name, Addresses: addresses(l.Prefixes), Phase: l.phase.String(), Error: s.fault(l.Index),
		})
	}
	for _, l := range s.unjoined() {
		state.Links = append(state.Links, LinkState{
			Interface: l.Name, Addresses: addresses(l.Prefixes), Phase: "waiting", Error: s.fault(l.Index),
		})
	}
	a.mu.Lock()
	before := a.state
	a.state = state
	a.mu.Unlock()
	if before.Host != state.Host {
		a.log.InfoContext(ctx, "announcing by mDNS", "instance", state.Instance, "host", state.Host, "port", strconv.Itoa(a.config.Port))
	}
	if describe(before) != describe(state) {
		a.log.InfoContext(ctx, "addresses announced by mDNS", "links", describe(state))
	}
}

// describe is the part of a state that is worth a line in the log.
func describe(s State) string {
	var text []string
	for _, l := range s.Links {
		line := l.Interface + " " + strings.Join(l.Addresses, " ")
		if l.Error != "" {
			line += " (" + l.Error + ")"
		}
		text = append(text, line)
	}
	return strings.Join(text, ", ")
}

func addresses(prefixes []netip.Prefix) []string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.Addr().String()
	}
	return texts
}
