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
)

// Times of RFC 6762.
const (
	probes              = 3
	probeEvery          = 250 * time.Millisecond // §8.1
	announcements       = 2
	announceEvery       = time.Second            // §8.3
	retryAfter          = 5 * time.Second        // an announcement that could not be sent
	tieBreakDelay       = time.Second            // §8.2
	manyConflicts       = 15                     // within
	conflictWindow      = 10 * time.Second       // make each further attempt wait
	conflictWaits       = 5 * time.Second        // §8.1
	reclaimEvery        = 5 * time.Second        // a name that another has, and up to a second more
	reclaimPause        = time.Second            // at least between two attempts
	sharedDelay         = 20 * time.Millisecond  // at least, §6
	sharedSpread        = 100 * time.Millisecond // and so much more at most
	truncatedDelay      = 400 * time.Millisecond // at least, for the asker's further known answers, §7.2
	repeatAfter         = time.Second            // the same record by multicast, §6
	defendAfter         = 250 * time.Millisecond // the same to a probe, §6
	maxDeferredQueriers = 32                     // askers waited for on a link; more get their answer at once
)

// phase is how far the claim of a name is.
type phase int

const (
	waiting phase = iota // somebody else has it
	probing
	announcing
	ready
)

func (p phase) String() string {
	switch p {
	case waiting:
		return "waiting"
	case probing:
		return "probing"
	case announcing:
		return "announcing"
	default:
		return "ready"
	}
}

// Link is an interface with addresses that can do multicast.
type Link struct {
	Index    int
	Name     string
	Hardware net.HardwareAddr
	Prefixes []netip.Prefix // sorted; addresses with the length of their network
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

// link is a Link, the names claimed on it, and what was said on it.
type link struct {
	Link

	specified *name
	own       *name // only where another has the specified name
	said      map[string]time.Time
	replies   []reply
	conflicts []time.Time // the last manyConflicts
	defence   defence
	rival     rival
	pair      pair
}

// names are those that are claimed.
func (l *link) names() []*name {
	if l.own == nil {
		return []*name{l.specified}
	}
	return []*name{l.specified, l.own}
}

// due are the times at which there is something to do.
func (l *link) due() []time.Time {
	times := []time.Time{l.defence.due, l.pair.due}
	for _, n := range l.names() {
		times = append(times, n.due)
	}
	for _, reply := range l.replies {
		times = append(times, reply.due)
	}
	return times
}

// reply waits for its moment.
type reply struct {
	due     time.Time
	records []dns.RR
	pause   time.Duration // since the same record was last sent
	asker   netip.Addr    // who may still say what it knows; invalid for none
}

// packet is a message as it came.
type packet struct {
	data []byte
	link int // index of the interface; 0 where the system does not tell
	from netip.AddrPort
	to   netip.Addr // invalid where the system does not tell
}

// send hands a message to a link's multicast group, or to one address, and
// reports whether the system took it.
type send func(link int, to netip.AddrPort, message []byte) bool

// responder is the protocol. Its methods are called by one goroutine, with times
// that do not go back.
type responder struct {
	config Config
	id     string // that the gateways of a link know one another by
	random *rand.Rand
	send   send
	links  map[int]*link
	// conflicted counts claims of our names by others since the start.
	conflicted int
}

func newResponder(c Config, seed uint64, send send) *responder {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // spreads answers in time and tells gateways apart
	return &responder{
		config: c, id: fmt.Sprintf("%016x", random.Uint64()), send: send, links: map[int]*link{}, random: random,
	}
}

// seed makes two gateways that are switched on together wait differently.
func seed(now time.Time) uint64 { return uint64(now.UnixNano()) ^ rand.Uint64() } //nolint:gosec // see above

// ownLabel is a name that no other gateway has: the specified one with the end of
// the interface's hardware address, which is printed on many a box.
func (r *responder) ownLabel(l Link) string {
	last := r.id[:6]
	if n := len(l.Hardware); n >= 3 {
		last = hex.EncodeToString(l.Hardware[n-3:])
	}
	return r.config.Name + "-" + last
}

func (r *responder) records(l *link, n *name) records { return r.recordsFor(l, n, netip.Addr{}) }

// held are the records of the names that a link has, for one asker.
func (r *responder) held(l *link, asker netip.Addr) names {
	var all names
	for _, n := range l.names() {
		if n.held() {
			all = append(all, r.recordsFor(l, n, asker))
		}
	}
	return all
}

// recordsFor are those of a name for one asker, invalid for everybody. Small
// resolvers take the first address, so the first is of the asker's network; one
// that the interface gave itself for want of another is the last.
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
	return recordsOf(n.instance(), n.host(), r.config, prefixes)
}

func (r *responder) sorted() []*link {
	return slices.SortedFunc(maps.Values(r.links), func(a, b *link) int { return cmp.Compare(a.Index, b.Index) })
}

// update takes note of the links that there are now.
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
	l := &link{Link: found, specified: &name{label: r.config.Name}, said: map[string]time.Time{}}
	l.specified.begin(now.Add(r.upTo(probeEvery)))
	l.pair.due = now.Add(askFirst)
	return l
}

// readdress tells of other addresses. They may mean another network, so a name
// that somebody else had is asked for at once.
func (r *responder) readdress(now time.Time, l *link, found Link) {
	var before [][]dns.RR
	for _, n := range l.names() {
		before = append(before, r.records(l, n).address)
	}
	l.Link = found
	clear(l.said) // of addresses that may never come back
	for i, n := range l.names() {
		switch n.phase {
		case waiting:
			r.retry(now, l, n, now)
		case probing:
		case announcing, ready:
			after := r.records(l, n).address
			gone := slices.DeleteFunc(before[i], func(record dns.RR) bool { return contains(after, record) })
			r.multicast(l, &dns.Msg{Answer: withTTL(gone, 0)})
			n.phase, n.steps, n.due = announcing, 0, now
		}
	}
}

// next is when [responder.advance] has something to do.
func (r *responder) next() (at time.Time, ok bool) {
	for _, l := range r.links {
		for _, t := range l.due() {
			if !t.IsZero() && (!ok || t.Before(at)) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// advance does what is due.
func (r *responder) advance(now time.Time) {
	for _, l := range r.sorted() {
		for _, n := range l.names() {
			r.step(now, l, n)
		}
		r.stepDefence(now, l)
		r.stepPair(now, l)
		pending := l.replies
		l.replies = nil
		for _, reply := range pending {
			if reply.due.After(now) {
				l.replies = append(l.replies, reply)
				continue
			}
			r.multicastNow(now, l, reply)
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
		n.phase, n.steps = announcing, 0
		if n == l.specified {
			l.pair.forgetActive() // whoever had it is silent
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
	if n == l.specified {
		r.dropOwn(l)
	}
}

// announce tells everybody all of a name, and reports whether it could.
func (r *responder) announce(now time.Time, l *link, n *name) bool {
	all := r.records(l, n).all()
	for _, record := range all {
		l.said[record.String()] = now
	}
	return r.multicast(l, &dns.Msg{Answer: withCacheFlush(all)})
}

// dropOwn gives up the name that stood in for the specified one.
func (r *responder) dropOwn(l *link) {
	if l.own != nil && l.own.held() {
		r.takeBack(l, l.own)
	}
	l.own = nil
}

// probe asks whether anybody has a name, and says what it would have it mean.
// The answer is to go to everybody: a unicast one might reach another responder
// of this machine instead (§15.1).
func (r *responder) probe(l *link, n *name) {
	question := func(name string) dns.Question {
		return dns.Question{Name: name, Qtype: dns.TypeANY, Qclass: dns.ClassINET}
	}
	m := &dns.Msg{Question: []dns.Question{question(n.instance()), question(n.host())}, Ns: r.records(l, n).unique()}
	r.write(l, netip.AddrPort{}, m)
}

// goodbye takes everything back.
func (r *responder) goodbye() {
	for _, l := range r.sorted() {
		for _, n := range l.names() {
			if n.held() {
				r.takeBack(l, n)
			}
		}
	}
}

func (r *responder) takeBack(l *link, n *name) {
	r.multicast(l, &dns.Msg{Answer: withTTL(withCacheFlush(r.records(l, n).own()), 0)})
}

// multicast sends a response to everybody on a link, and reports whether it
// could.
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
