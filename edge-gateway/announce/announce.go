// Package announce makes the gateway found by multicast DNS (RFC 6762) and
// DNS-Based Service Discovery (RFC 6763): instance monitor-gateway of
// _http._tcp on host monitor-gateway.local, on every link with the addresses of
// that link.
//
// The responder is our own because of the nodes. hashicorp/mdns answers a
// unicast query without its question and with id 0, which lwIP and dig refuse;
// it compares names by case, serves one interface, and neither probes nor
// announces. grandcat/zeroconf is unmaintained and has the last two flaws too;
// brutella/dnssd answers legacy queries with names of its own and does not see
// an interface that appears later. miekg/dns reads and writes the messages.
//
// The protocol is a state machine without clock, network or goroutine
// ([responder]); [Announcer] gives it all three.
package announce

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coldaisle.dev/edge-gateway/multicast"
)

// Config configures an announcer.
type Config struct {
	Port      int       // where the service listens
	Enrolment Enrolment // nil for an open gateway
	// SiteToken is the secret that the open gateways of a site share; it may be empty.
	// An enrolled one does not use it.
	SiteToken string
}

// Enrolment identifies the customer's gateways to each other.
type Enrolment interface {
	// PairKey is the secret that the customer's gateways share.
	PairKey() []byte
	// Revoked reports whether the gateway publishes nothing, so that it leaves the specified
	// name to any host that claims it.
	Revoked() bool
}

// pollEvery is the time between lists of the machine's interfaces.
const pollEvery = time.Second

// State is the current announcement, as /health shows it.
type State struct {
	Instance string      `json:"instance"`         // such as monitor-gateway._http._tcp.local
	Host     string      `json:"host"`             // such as monitor-gateway.local
	Role     Role        `json:"role,omitzero"`    // of the gateway; absent before a link has one
	Problem  string      `json:"problem,omitzero"` // why nodes may not find this gateway under its specified name
	Links    []LinkState `json:"links"`
	Error    string      `json:"error,omitzero"` // why nothing is announced
}

// LinkState is the announcement on one interface.
type LinkState struct {
	Interface string   `json:"interface"`
	Host      string   `json:"host,omitzero"` // by which the gateway is found there
	Addresses []string `json:"addresses"`
	Phase     string   `json:"phase"`            // of that name: probing, announcing or ready; waiting without a name
	Role      Role     `json:"role,omitzero"`    // of the gateway on the link
	Peers     []string `json:"peers,omitzero"`   // addresses of the other gateways of the pair
	Problem   string   `json:"problem,omitzero"` // who else claims the specified name
	Error     string   `json:"error,omitzero"`   // why nodes on this link cannot find the gateway
}

// Standby reports whether the other gateway has the name on each link where the pair meets.
func (s State) Standby() bool {
	return s.Role == RoleStandby && !slices.ContainsFunc(s.Links, func(l LinkState) bool { return l.Role == RoleActive && len(l.Peers) > 0 })
}

// Announcer announces a gateway.
type Announcer struct {
	config Config
	clock  func() time.Time
	log    *slog.Logger

	mu    sync.Mutex
	state State
}

// New returns an announcer. Nothing happens before [Announcer.Run].
func New(config Config, clock func() time.Time, log *slog.Logger) *Announcer {
	return &Announcer{config: config, clock: clock, log: log}
}

// State returns the current announcement.
func (a *Announcer) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Collectors are the announcer's metrics.
func (a *Announcer) Collectors() (all []prometheus.Collector) {
	for _, role := range []Role{RoleActive, RoleStandby, RoleConflict} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gateway_role", Help: "1 for the role of this gateway in its network: active, standby or conflict.",
			ConstLabels: prometheus.Labels{"role": string(role)},
		}, func() float64 {
			if a.State().Role == role {
				return 1
			}
			return 0
		}))
	}
	return all
}

// Run announces until the context ends, then says goodbye and returns nil. Without
// network, or while multicast is refused, it retries: the gateway serves meanwhile.
func (a *Announcer) Run(ctx context.Context) error {
	s := &sockets{received: make(chan packet), stop: make(chan struct{}), open: map[int]*linkSockets{}}
	defer s.close()
	r := newResponder(a.config, rand.Uint64(), s.send) //nolint:gosec // spreads answers in time and tells gateways apart
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	r.update(a.clock(), s.links(ctx))
	for {
		a.publish(ctx, r, s)
		now := a.clock()
		select {
		case <-ctx.Done():
			r.goodbye()
			return nil
		case p := <-s.received:
			r.receive(a.clock(), p)
			r.advance(a.clock())
		case <-poll.C:
			r.update(a.clock(), s.links(ctx))
		case <-time.After(r.next(now.Add(pollEvery)).Sub(now)):
			r.advance(a.clock())
		}
	}
}

// publish replaces the state and logs changes.
func (a *Announcer) publish(ctx context.Context, r *responder, s *sockets) {
	state := r.state(a.clock())
	for _, o := range slices.SortedFunc(maps.Values(s.open), func(a, b *linkSockets) int { return a.link.Index - b.link.Index }) {
		if o.err == nil {
			continue
		}
		at := slices.IndexFunc(state.Links, func(l LinkState) bool { return l.Interface == o.link.Name })
		if at < 0 { // without sockets the responder does not know it
			at = len(state.Links)
			state.Links = append(state.Links, LinkState{Interface: o.link.Name, Addresses: addresses(o.link.Prefixes), Phase: waiting.String()})
		}
		state.Links[at].Error = o.err.Error()
	}
	if len(r.links) == 0 && len(state.Links) > 0 {
		state.Error = state.Links[0].Error
	}
	a.mu.Lock()
	before := a.state
	a.state = state
	a.mu.Unlock()
	if state.Error != "" && before.Error != state.Error {
		a.log.WarnContext(ctx, "nodes cannot find the gateway by mDNS", "error", state.Error)
	}
	if before.Host != state.Host || before.Role != state.Role || before.Problem != state.Problem {
		level := slog.LevelInfo
		if state.Problem != "" {
			level = slog.LevelWarn
		}
		a.log.Log(ctx, level, "announcing by mDNS", "instance", state.Instance, "host", state.Host,
			"port", strconv.Itoa(a.config.Port), "role", string(state.Role), "problem", state.Problem)
	}
	if describe(before) != describe(state) {
		a.log.InfoContext(ctx, "addresses announced by mDNS", "links", describe(state))
	}
}

// state returns the current announcement. Its role is the worst of all links.
func (r *responder) state(now time.Time) State {
	state := State{}
	current := &name{label: multicast.Name}
	for _, l := range r.sorted() {
		n := l.specified
		if !n.held() && l.own != nil {
			n = l.own
			current = n
		}
		role, problem := l.role(now)
		found := LinkState{
			Interface: l.Name, Host: plain(n.host()), Addresses: addresses(l.Prefixes), Phase: n.phase.String(), Role: role,
			Peers: l.pair.addresses(), Problem: problem,
		}
		state.Problem = cmp.Or(state.Problem, problem)
		if severity(role) > severity(state.Role) {
			state.Role = role
		}
		state.Links = append(state.Links, found)
	}
	state.Instance, state.Host = plain(current.instance()), plain(current.host())
	return state
}

func severity(role Role) int {
	return slices.Index([]Role{"", RoleActive, RoleStandby, RoleConflict}, role)
}

func plain(name string) string { return strings.TrimSuffix(name, ".") }

// describe returns the links with their addresses and errors, for the log.
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
