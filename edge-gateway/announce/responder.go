package announce

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
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
	sharedDelay         = 20 * time.Millisecond  // at least, §6
	sharedSpread        = 100 * time.Millisecond // and so much more at most
	truncatedDelay      = 400 * time.Millisecond // at least, for the asker's further known answers, §7.2
	repeatAfter         = time.Second            // the same record by multicast, §6
	defendAfter         = 250 * time.Millisecond // the same to a probe, §6
	maxDeferredQueriers = 32                     // askers waited for on a link; more get their answer at once
)

// phase is how far a link is.
type phase int

const (
	probing phase = iota
	announcing
	ready
)

func (p phase) String() string {
	switch p {
	case probing:
		return "probing"
	case announcing:
		return "announcing"
	default:
		return "ready"
	}
}

// Link is an interface with IPv4 addresses that can do multicast.
type Link struct {
	Index    int
	Name     string
	Prefixes []netip.Prefix // sorted; addresses with the length of their network
}

// link is a Link and what was said on it.
type link struct {
	Link

	phase   phase
	steps   int       // probes or announcements sent
	due     time.Time // of the next; zero when ready
	said    map[string]time.Time
	replies []reply
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
	config    Config
	number    int // of the name; from 2 on it is part of it
	random    *rand.Rand
	send      send
	links     map[int]*link
	conflicts []time.Time
}

func newResponder(c Config, seed uint64, send send) *responder {
	return &responder{
		config: c, number: 1, send: send, links: map[int]*link{},
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // spreads answers in time
	}
}

// seed makes two gateways that are switched on together wait differently.
func seed(now time.Time) uint64 { return uint64(now.UnixNano()) ^ rand.Uint64() } //nolint:gosec // see above

func (r *responder) label() string {
	if r.number == 1 {
		return r.config.Name
	}
	return fmt.Sprintf("%s-%d", r.config.Name, r.number)
}

func (r *responder) instance() string { return r.label() + "." + serviceType }
func (r *responder) host() string     { return r.label() + ".local." }

func (r *responder) records(l *link) records { return r.recordsFor(l, netip.Addr{}) }

// recordsFor are those of a link for one asker, invalid for everybody. Small
// resolvers take the first address, so the first is of the asker's network; one
// that the interface gave itself for want of another is the last.
func (r *responder) recordsFor(l *link, asker netip.Addr) records {
	rank := func(p netip.Prefix) int {
		switch {
		case p.Contains(asker):
			return 0
		case !p.Addr().IsLinkLocalUnicast():
			return 1
		default:
			return 2
		}
	}
	prefixes := slices.Clone(l.Prefixes)
	slices.SortStableFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Compare(rank(a), rank(b)) })
	return recordsOf(r.instance(), r.host(), r.config, prefixes)
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
			r.links[found.Index] = &link{Link: found, due: now.Add(r.upTo(probeEvery)), said: map[string]time.Time{}}
		case !slices.Equal(l.Prefixes, found.Prefixes):
			before := r.records(l)
			l.Link = found
			if l.phase == probing {
				continue
			}
			after := r.records(l)
			gone := slices.DeleteFunc(before.address, func(record dns.RR) bool { return contains(after.address, record) })
			r.multicast(l, &dns.Msg{Answer: withTTL(gone, 0)})
			l.phase, l.steps, l.due = announcing, 0, now
		}
	}
	maps.DeleteFunc(r.links, func(index int, _ *link) bool { return !present[index] })
	r.advance(now)
}

// next is when [responder.advance] has something to do.
func (r *responder) next() (at time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for _, l := range r.links {
		earlier(l.due)
		for _, reply := range l.replies {
			earlier(reply.due)
		}
	}
	return at, ok
}

// advance does what is due.
func (r *responder) advance(now time.Time) {
	for _, l := range r.sorted() {
		r.step(now, l)
		waiting := l.replies
		l.replies = nil
		for _, reply := range waiting {
			if reply.due.After(now) {
				l.replies = append(l.replies, reply)
				continue
			}
			r.multicastNow(now, l, reply)
		}
	}
}

func (r *responder) step(now time.Time, l *link) {
	if l.due.IsZero() || l.due.After(now) {
		return
	}
	if l.phase == probing && l.steps == probes {
		l.phase, l.steps = announcing, 0
	}
	l.steps++
	if l.phase == probing {
		r.probe(l)
		l.due = now.Add(probeEvery)
		return
	}
	all := r.records(l).all()
	for _, record := range all {
		l.said[record.String()] = now
	}
	if !r.multicast(l, &dns.Msg{Answer: withCacheFlush(all)}) {
		l.steps, l.due = 0, now.Add(retryAfter)
		return
	}
	l.due = now.Add(announceEvery)
	if l.steps == announcements {
		l.phase, l.due = ready, time.Time{}
	}
}

// probe asks whether anybody has the names, and says what it would have them
// mean. The answer is to go to everybody: a unicast one might reach another
// responder of this machine instead (§15.1).
func (r *responder) probe(l *link) {
	question := func(name string) dns.Question {
		return dns.Question{Name: name, Qtype: dns.TypeANY, Qclass: dns.ClassINET}
	}
	m := &dns.Msg{Question: []dns.Question{question(r.instance()), question(r.host())}, Ns: r.records(l).unique()}
	r.write(l, netip.AddrPort{}, m)
}

// goodbye takes everything back.
func (r *responder) goodbye() {
	for _, l := range r.sorted() {
		if l.phase != probing {
			r.multicast(l, &dns.Msg{Answer: withTTL(withCacheFlush(r.records(l).own()), 0)})
		}
	}
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
