package announce

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
	"coldaisle.dev/shared/reading"
)

// Times of RFC 6762.
const (
	probes        = 3
	probeEvery    = 250 * time.Millisecond // §8.1
	announcements = 2
	announceEvery = time.Second            // §8.3
	retryAfter    = 5 * time.Second        // an announcement that could not be sent
	tieBreakDelay = time.Second            // §8.2
	reclaimEvery  = 5 * time.Second        // between attempts at a name that another has, and up to a second more
	reclaimPause  = time.Second            // between two attempts at least
	sharedDelay   = 20 * time.Millisecond  // before an answer that others give too, §6
	sharedSpread  = 100 * time.Millisecond // the most that is added to it at random
	repeatAfter   = time.Second            // before a record is multicast again, §6
	defendAfter   = 250 * time.Millisecond // the same in answer to a probe, §6
)

// phase is the progress of claiming a name.
type phase int

const (
	waiting phase = iota // somebody else has it
	probing
	announcing
	ready
)

func (p phase) String() string { return [...]string{"waiting", "probing", "announcing", "ready"}[p] }

// Link is an interface with addresses that can do multicast.
type Link struct {
	Index    int
	Name     string
	Hardware net.HardwareAddr
	Prefixes []netip.Prefix // addresses with the length of their network
}

// name is a label that the gateway claims on a link, for its host and for its
// instance.
type name struct {
	label string
	phase phase
	steps int       // probes or announcements sent
	due   time.Time // of the next, or of the next attempt; zero when ready
	tried time.Time // the last attempt
}

func (n *name) held() bool { return n.phase >= announcing }

func (n *name) instance() string { return n.label + "." + serviceType }
func (n *name) host() string     { return n.label + ".local." }

// begin probes for a name from the start.
func (n *name) begin(due time.Time) { n.phase, n.steps, n.due, n.tried = probing, 0, due, due }

// link is a Link, the names claimed on it, and the state of its conversations.
type link struct {
	Link

	specified *name
	own       *name                // the substitute, only while another has the specified name
	said      map[string]time.Time // when each record was last multicast
	pending   reply                // to shared questions
	defence   defence
	rival     rival
	pair      pair
}

func (l *Link) hasIPv4() bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
}

func (l *link) names() []*name {
	if l.own == nil {
		return []*name{l.specified}
	}
	return []*name{l.specified, l.own}
}

// reply is an answer that is delayed until due.
type reply struct {
	due     time.Time // zero for none
	records []dns.RR
}

// packet is a received message.
type packet struct {
	data []byte
	link int // index of the interface
	from netip.AddrPort
	to   netip.Addr // invalid if the system does not report it
}

// send hands a message to a link's multicast group, or to one address, and
// reports whether the system took it.
type send func(link int, to netip.AddrPort, message []byte) bool

// responder is the protocol. Its methods are called by one goroutine, with times
// that do not go back.
type responder struct {
	config Config
	id     string // identifies the gateway to others on a link
	random *rand.Rand
	send   send
	links  map[int]*link
}

func newResponder(c Config, seed uint64, send send) *responder {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // keeps no secret
	return &responder{
		config: c, id: fmt.Sprintf("%016x", random.Uint64()), send: send, links: map[int]*link{}, random: random,
	}
}

// ownLabel returns a name that no other gateway has: the specified one with the last bytes of
// the interface's hardware address, which is printed on most devices.
func (r *responder) ownLabel(l Link) string {
	last := r.id[:6]
	if n := len(l.Hardware); n >= 3 {
		last = hex.EncodeToString(l.Hardware[n-3:])
	}
	return multicast.Name + "-" + last
}

func (r *responder) records(l *link, n *name) records { return r.recordsFor(l, n, netip.Addr{}) }

// held returns the records of the names that a link has, for one asker.
func (r *responder) held(l *link, asker netip.Addr) names {
	var all names
	for _, n := range l.names() {
		if n.held() {
			all = append(all, r.recordsFor(l, n, asker))
		}
	}
	return all
}

// recordsFor returns the records of a name for one asker; an invalid address means everybody.
// Small resolvers use the first address, so the first is in the asker's network; link-local
// ones are last.
func (r *responder) recordsFor(l *link, n *name, asker netip.Addr) records {
	rank := func(p netip.Prefix) int {
		switch {
		case p.Contains(asker.WithZone("")):
			return 0
		case !p.Addr().IsLinkLocalUnicast():
			return 1
		default:
			return 2
		}
	}
	prefixes := slices.Clone(l.Prefixes)
	slices.SortStableFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Compare(rank(a), rank(b)) })
	return recordsOf(n.instance(), n.host(), r.config.Port, prefixes)
}

func (r *responder) sorted() []*link {
	return slices.SortedFunc(maps.Values(r.links), func(a, b *link) int { return cmp.Compare(a.Index, b.Index) })
}

// update applies the links that the machine has now.
func (r *responder) update(now time.Time, links []Link) {
	present := map[int]bool{}
	for _, found := range links {
		present[found.Index] = true
		l, ok := r.links[found.Index]
		switch {
		case !ok:
			r.links[found.Index] = r.newLink(now, found)
		case !slices.Equal(l.Prefixes, found.Prefixes):
			r.readdress(now, l, found)
		}
	}
	maps.DeleteFunc(r.links, func(index int, _ *link) bool { return !present[index] })
	r.advance(now)
}

func (r *responder) newLink(now time.Time, found Link) *link {
	l := &link{Link: found, specified: &name{label: multicast.Name}, said: map[string]time.Time{}}
	l.pair = pair{nonces: map[string]time.Time{}, peers: gateways{}, foreign: gateways{}}
	l.specified.begin(now.Add(r.upTo(probeEvery)))
	l.pair.due = now.Add(askFirst)
	return l
}

// readdress announces changed addresses. They may mean another network, so a name
// that somebody else had is probed for at once.
func (r *responder) readdress(now time.Time, l *link, found Link) {
	gone := slices.DeleteFunc(slices.Clone(l.Prefixes), func(p netip.Prefix) bool {
		return slices.ContainsFunc(found.Prefixes, func(now netip.Prefix) bool { return now.Addr() == p.Addr() })
	})
	l.Link = found
	clear(l.said) // it may have addresses that never come back
	for _, n := range l.names() {
		switch n.phase {
		case waiting:
			r.retry(n, now)
		case probing:
		case announcing, ready:
			r.multicast(l, &dns.Msg{Answer: withTTL(recordsOf(n.instance(), n.host(), r.config.Port, gone).address, 0)})
			n.phase, n.steps, n.due = announcing, 0, now
		}
	}
}

// next returns when [responder.advance] has something to do, or latest if that is sooner.
func (r *responder) next(latest time.Time) time.Time {
	for _, l := range r.links {
		times := []time.Time{l.defence.due, l.pair.due, l.pending.due}
		if len(l.pair.questions) > 0 {
			times = append(times, l.pair.answerDue)
		}
		for _, n := range l.names() {
			times = append(times, n.due)
		}
		for _, due := range times {
			if !due.IsZero() {
				latest = reading.Earlier(latest, due)
			}
		}
	}
	return latest
}

func (r *responder) advance(now time.Time) {
	for _, l := range r.sorted() {
		for _, n := range l.names() {
			r.step(now, l, n)
		}
		r.stepDefence(now, l)
		r.stepPair(now, l)
		if pending := l.pending; !pending.due.IsZero() && !pending.due.After(now) {
			l.pending = reply{}
			r.multicastReply(now, l, pending.records, repeatAfter)
		}
	}
}

func (r *responder) step(now time.Time, l *link, n *name) {
	if n.due.IsZero() || n.due.After(now) {
		return
	}
	if n.phase == waiting {
		n.begin(now)
	}
	if n.phase == probing && n.steps == probes {
		if l.asksFirst(n) {
			clear(l.pair.foreign)
			r.lose(now, l, n)
			return
		}
		n.phase, n.steps = announcing, 0
		if n == l.specified {
			l.pair.forgetActive() // its holder is silent
			l.rival = rival{}
		}
	}
	n.steps++
	if n.phase == probing {
		r.probe(l, n)
		n.due = now.Add(probeEvery)
		return
	}
	if !r.announce(now, l, n) {
		n.steps, n.due = 0, now.Add(retryAfter)
		return
	}
	n.due = now.Add(announceEvery)
	if n.steps == announcements {
		n.phase, n.due = ready, time.Time{}
	}
	if n == l.specified && l.own != nil {
		r.withdraw(l, l.own)
		l.own = nil
	}
}

// announce multicasts all records of a name and reports whether that succeeded.
func (r *responder) announce(now time.Time, l *link, n *name) bool {
	all := r.records(l, n).all()
	for _, record := range all {
		l.said[record.String()] = now
	}
	return r.multicast(l, &dns.Msg{Answer: withCacheFlush(all)})
}

// asksFirst reports whether a gateway of another enrolment had the name. Then the first probe
// proposes no records, and one that does follows 5 seconds after nobody answered: by then the
// standby of that enrolment has the name.
func (l *link) asksFirst(n *name) bool {
	return n == l.specified && !l.pair.active() && len(l.pair.foreign) > 0
}

// probe asks whether anybody has a name, and proposes our records for it. It asks for a
// multicast answer: a unicast one might reach another responder of this machine (§15.1).
func (r *responder) probe(l *link, n *name) {
	m := &dns.Msg{}
	if !l.asksFirst(n) {
		m.Ns = r.records(l, n).unique()
	}
	for _, name := range []string{n.instance(), n.host()} {
		m.Question = append(m.Question, dns.Question{Name: name, Qtype: dns.TypeANY, Qclass: dns.ClassINET})
	}
	r.write(l, netip.AddrPort{}, m)
}

func (r *responder) goodbye() {
	for _, l := range r.sorted() {
		for _, n := range l.names() {
			r.withdraw(l, n)
		}
	}
}

// withdraw says goodbye to a name, if it is held.
func (r *responder) withdraw(l *link, n *name) {
	if n.held() {
		r.multicast(l, &dns.Msg{Answer: withTTL(withCacheFlush(r.records(l, n).own()), 0)})
	}
}

// multicast sends a response to a link's group and reports whether that succeeded.
func (r *responder) multicast(l *link, m *dns.Msg) bool {
	if len(m.Answer) == 0 {
		return true
	}
	m.Response, m.Authoritative = true, true
	return r.write(l, netip.AddrPort{}, m)
}

func (r *responder) write(l *link, to netip.AddrPort, m *dns.Msg) bool {
	m.Compress = true
	wire, err := m.Pack()
	return err == nil && r.send(l.Index, to, wire) // our own records can be written
}

func (r *responder) upTo(d time.Duration) time.Duration {
	return time.Duration(r.random.Int64N(int64(d)))
}
