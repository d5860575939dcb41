package announce

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// RFC 6762 §9 has a responder that hears another one's record of its name probe
// again, and the loser of that take another name. Whoever can send a packet could
// so take the name that all nodes of a site know, for ever. So a name that has been
// won by probing is kept and defended, and given up to a verified gateway of the
// same enrolment alone (pair.go). An honest responder that comes later, or that
// another network brings along, probes as the RFC wants, and loses to the defence.
// Who is defended against is told in /health, because nodes may hear both.
const (
	defendFirst  = time.Second      // §6: no record by multicast more than once a second
	defendSlowly = 10 * time.Second // pauses double up to this, so that two who both defend make no storm
	defendAnew   = 30 * time.Second // without a conflict begins with the short pause again
	rivalAfter   = time.Second      // is a conflict told in /health: it may turn out to be our pair
	rivalFor     = time.Minute      // and until so long after it was last seen
)

// defence is when a held name was announced against another's claim of it.
type defence struct {
	heard, last, due time.Time
	pause            time.Duration
}

// rival is who else claims the specified name.
type rival struct {
	since, at time.Time // the first and the last claim
	address   netip.Addr
	gateway   bool // of another enrolment, else any device
}

// isCurrent reports whether somebody claims the name at present.
func (v *rival) isCurrent(now time.Time) bool {
	return !v.at.IsZero() && now.Sub(v.at) < rivalFor && now.Sub(v.since) >= rivalAfter
}

// claims notes that the name was claimed from an address. One machine is heard by
// IPv4 and by IPv6; the former says more to a person.
func (v *rival) claims(now time.Time, from netip.Addr) {
	if v.at.IsZero() || now.Sub(v.at) >= rivalFor {
		v.since = now
	}
	if v.address != from && (from.Is4() || now.Sub(v.at) > reclaimEvery) {
		*v = rival{since: v.since, address: from}
	}
	v.at = now
}

// handleResponse looks for records of another host that conflict with our names
// (§9), for goodbyes of a name that we wait for, and for what gateways say of
// themselves.
func (r *responder) handleResponse(now time.Time, l *link, m *dns.Msg, from netip.Addr) {
	r.hearPair(now, l, m, from)
	claims := sync.OnceValue(r.uniqueRecordsOfAllLinks)
	records := slices.Concat(m.Answer, m.Extra)
	for _, n := range l.names() {
		if n.phase == waiting {
			if !r.isOwn(from) && slices.ContainsFunc(records, func(record dns.RR) bool { return isGoodbye(n, record) }) {
				r.retry(now, l, n, now.Add(r.upTo(probeEvery)))
			}
			continue
		}
		if !slices.ContainsFunc(records, func(record dns.RR) bool {
			return record.Header().Ttl > 0 && n.has(record) && r.conflicts(claims, record, from)
		}) {
			continue
		}
		r.noteConflict(now, l, n, from)
		switch {
		case n.phase == probing:
			r.lose(now, l, n)
		case n == l.specified && r.yields(l):
			r.yield(now, l)
		default:
			r.defend(now, l)
		}
	}
}

// conflicts reports whether a record of another host, of a name of ours, has
// different data than our claims. What is equal is no conflict (§9).
func (r *responder) conflicts(claims func() []dns.RR, record dns.RR, from netip.Addr) bool {
	switch record.Header().Rrtype {
	case dns.TypeSRV, dns.TypeTXT, dns.TypeA:
		return !contains(claims(), record)
	case dns.TypeAAAA:
		// This machine's own responder may announce its addresses.
		return !contains(claims(), record) && !r.isOwn(from)
	default:
		return false
	}
}

// has reports whether a record is of a name's host or instance.
func (n *name) has(record dns.RR) bool {
	of := record.Header().Name
	return sameName(of, n.instance()) || sameName(of, n.host())
}

// isGoodbye reports whether a record takes a name back.
func isGoodbye(n *name, record dns.RR) bool { return record.Header().Ttl == 0 && n.has(record) }

// uniqueRecordsOfAllLinks returns our unique records on every link: a machine with
// two interfaces in one network receives its own announcements.
func (r *responder) uniqueRecordsOfAllLinks() []dns.RR {
	var all []dns.RR
	for _, l := range r.sorted() {
		for _, n := range l.names() {
			for _, record := range r.records(l, n).unique() {
				all = appendUnique(all, record)
			}
		}
	}
	return all
}

// isOwn reports whether an address is this machine's.
func (r *responder) isOwn(address netip.Addr) bool {
	return slices.ContainsFunc(r.sorted(), func(l *link) bool {
		return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr() == address })
	})
}

// noteConflict remembers who else claims a name, and has gateways say who they
// are: it may be one of ours.
func (r *responder) noteConflict(now time.Time, l *link, n *name, from netip.Addr) {
	r.conflicted++
	l.conflicts = append(l.conflicts, now)
	l.conflicts = l.conflicts[max(0, len(l.conflicts)-manyConflicts):]
	if n != l.specified {
		return
	}
	if !l.pair.isMember(from) {
		l.rival.claims(now, from)
	}
	r.askSoon(now, l)
}

// lose leaves a name to whoever has it. The gateway is found under its own name
// until it can have the specified one.
func (r *responder) lose(now time.Time, l *link, n *name) {
	n.phase, n.steps = waiting, 0
	r.retry(now, l, n, now.Add(reclaimEvery+r.upTo(time.Second)))
	if n == l.specified && l.own == nil {
		l.own = &name{label: r.ownLabel(l.Link)}
		l.own.begin(now.Add(r.upTo(probeEvery)))
	}
}

// retry sets when a name is probed for again: a second after the last attempt at
// the earliest, and after many conflicts not before five seconds (§8.1).
func (r *responder) retry(now time.Time, l *link, n *name, due time.Time) {
	if soonest := n.tried.Add(reclaimPause); due.Before(soonest) {
		due = soonest
	}
	many := len(l.conflicts) == manyConflicts && now.Sub(l.conflicts[0]) <= conflictWindow
	if soonest := now.Add(conflictWaits); many && due.Before(soonest) {
		due = soonest
	}
	n.due = due
}

// defend announces what is held, so that whoever heard another's claim hears ours
// after it. However many claims come, the pauses grow, and the last claim has an
// answer.
func (r *responder) defend(now time.Time, l *link) {
	d := &l.defence
	if now.Sub(d.heard) > defendAnew {
		d.pause = 0
	}
	d.heard = now
	if d.due.IsZero() {
		d.due = now
		if next := d.last.Add(d.pause); next.After(now) {
			d.due = next
		}
	}
	r.stepDefence(now, l)
}

func (r *responder) stepDefence(now time.Time, l *link) {
	d := &l.defence
	if d.due.IsZero() || d.due.After(now) {
		return
	}
	d.due, d.last, d.pause = time.Time{}, now, min(max(2*d.pause, defendFirst), defendSlowly)
	for _, n := range l.names() {
		if n.held() {
			r.announce(now, l, n)
		}
	}
}

// tieBreak meets another prober of the same name: the one whose records come
// later in order goes on, the other waits and asks again (§8.2). Whoever only ever
// asks does not keep the gateway without any name.
func (r *responder) tieBreak(now time.Time, l *link, n *name, m *dns.Msg, from netip.Addr) {
	ours, claims := r.records(l, n).unique(), r.uniqueRecordsOfAllLinks()
	for _, of := range []string{n.instance(), n.host()} {
		named := func(records []dns.RR) []dns.RR {
			return slices.DeleteFunc(slices.Clone(records), func(record dns.RR) bool { return !sameName(record.Header().Name, of) })
		}
		theirs := named(m.Ns)
		if len(theirs) == 0 || !slices.ContainsFunc(theirs, func(record dns.RR) bool { return !contains(claims, record) }) {
			continue
		}
		if compare(named(ours), theirs) < 0 {
			n.steps, n.due = 0, now.Add(tieBreakDelay)
			if now.Sub(n.tried) > reclaimEvery {
				r.noteConflict(now, l, n, from)
				r.lose(now, l, n)
			}
			return
		}
	}
}
