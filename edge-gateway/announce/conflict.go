package announce

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/shared/reading"
)

// By RFC 6762 §9 a responder that receives another's record of its name probes again,
// and the loser chooses another name. Anybody who can send a packet could thus take
// the name that all nodes of a site know, for good. Therefore a name that was won by
// probing is defended, and left only to a verified gateway of the same enrolment
// (pair.go). An honest responder that appears later, or when two networks are joined,
// probes as the RFC demands and loses to the defence. /health names the rival,
// because nodes may hear both.
const (
	defendFirst  = time.Second      // the first pause; §6: no record by multicast more than once a second
	defendSlowly = 10 * time.Second // pauses double up to this, so that two defenders cause no storm
	defendAnew   = 30 * time.Second // without a conflict, after which pauses are short again
	rivalAfter   = time.Second      // before /health reports a conflict: the rival may turn out to be our pair
)

// defence records when a held name was announced against another's claim.
type defence struct {
	heard, last, due time.Time
	pause            time.Duration
}

// rival is another host that claims the specified name.
type rival struct {
	since, at time.Time // the first and the last claim
	address   netip.Addr
	claimed   time.Time // last by this address
}

// isCurrent reports whether the rival has claimed the name lately.
func (v *rival) isCurrent(now time.Time) bool {
	return !v.at.IsZero() && now.Sub(v.at) < rememberFor && now.Sub(v.since) >= rivalAfter
}

// claims records a claim of the name. Of several rivals the first is reported until it falls
// silent; an IPv4 address is preferred to an IPv6 one, which may be the same machine's.
func (v *rival) claims(now time.Time, who netip.Addr) {
	if v.at.IsZero() || now.Sub(v.at) >= rememberFor {
		*v = rival{since: now}
	}
	v.at = now
	if v.address == who || !v.address.IsValid() || now.Sub(v.claimed) >= rememberFor || (who.Is4() && !v.address.Is4()) {
		v.address, v.claimed = who, now
	}
}

// claimant identifies who claims the name: the host's IPv4 address in the records, which is the
// same whether they came by IPv4 or by IPv6, or without one the sender's address.
func (n *name) claimant(records []dns.RR, from netip.Addr) netip.Addr {
	for _, record := range records {
		if a, ok := record.(*dns.A); ok && a.Hdr.Ttl > 0 && sameName(a.Hdr.Name, n.host()) {
			if address, ok := netip.AddrFromSlice(a.A); ok {
				return address.Unmap()
			}
		}
	}
	return from
}

// handleResponse looks for records of another host that conflict with our names
// (§9), for goodbyes of a name that we wait for, and for answers of other gateways.
func (r *responder) handleResponse(now time.Time, l *link, m *dns.Msg, from netip.Addr) {
	r.hearAnswers(now, l, m, from)
	records := slices.Concat(m.Answer, m.Extra)
	for _, n := range l.names() {
		if n.phase == waiting {
			gone := func(record dns.RR) bool { return record.Header().Ttl == 0 && n.has(record) }
			if !r.isOwn(from) && slices.ContainsFunc(records, gone) {
				r.retry(n, now.Add(r.upTo(probeEvery)))
			}
			continue
		}
		if !r.conflicts(n, records, from) {
			continue
		}
		r.recordConflict(now, l, n, records, from)
		switch {
		case n.phase == probing:
			r.lose(now, l, n)
		case n == l.specified && r.yields(l, records, from):
			r.yield(now, l)
		default:
			r.defend(now, l)
		}
	}
}

// conflicts reports whether another host's records of our name have other data than ours.
// Equal data are no conflict (§9), and this machine's own responder may announce its IPv6
// addresses.
func (r *responder) conflicts(n *name, records []dns.RR, from netip.Addr) bool {
	claims := sync.OnceValue(r.uniqueRecordsOfAllLinks)
	return slices.ContainsFunc(records, func(record dns.RR) bool {
		if record.Header().Ttl == 0 || !n.has(record) {
			return false
		}
		switch record.Header().Rrtype {
		case dns.TypeSRV, dns.TypeTXT, dns.TypeA:
			return !contains(claims(), record)
		case dns.TypeAAAA:
			return !contains(claims(), record) && !r.isOwn(from)
		default:
			return false
		}
	})
}

// has reports whether a record has the name of our host or instance.
func (n *name) has(record dns.RR) bool {
	owner := record.Header().Name
	return sameName(owner, n.instance()) || sameName(owner, n.host())
}

// uniqueRecordsOfAllLinks returns our unique records on every link: a machine with
// two interfaces in one network receives its own announcements.
func (r *responder) uniqueRecordsOfAllLinks() []dns.RR {
	var all []dns.RR
	for _, l := range r.sorted() {
		for _, n := range l.names() {
			all = append(all, r.records(l, n).unique()...)
		}
	}
	return all
}

func (r *responder) isOwn(address netip.Addr) bool {
	return slices.ContainsFunc(r.sorted(), func(l *link) bool {
		return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr() == address })
	})
}

// recordConflict records who else claims a name, and asks gateways to identify
// themselves: it may be one of the pair.
func (r *responder) recordConflict(now time.Time, l *link, n *name, records []dns.RR, from netip.Addr) {
	if n != l.specified {
		return
	}
	if who := n.claimant(records, from); !l.pair.peers.has(from) && !l.pair.peers.has(who) {
		l.rival.claims(now, who)
		if n.phase == probing {
			l.pair.forgetActive() // it was silent, and another has the name
		}
	}
	r.askSoon(now, l)
}

// lose leaves a name to its holder. The gateway uses a substitute until it gets the specified
// name.
func (r *responder) lose(now time.Time, l *link, n *name) {
	n.phase, n.steps = waiting, 0
	r.retry(n, now.Add(reclaimEvery+r.upTo(time.Second)))
	if n == l.specified && l.own == nil {
		l.own = &name{label: r.ownLabel(l.Link)}
		l.own.begin(now.Add(r.upTo(probeEvery)))
	}
}

// retry sets when to probe for a name again: at the earliest a second after the last attempt,
// so that there are fewer than fifteen conflicts in ten seconds (§8.1).
func (r *responder) retry(n *name, due time.Time) {
	n.due = reading.Later(due, n.tried.Add(reclaimPause))
}

// defend announces our names after another's claim, so that listeners hear ours last. The
// pauses grow with the number of claims, but the last claim is always answered.
func (r *responder) defend(now time.Time, l *link) {
	d := &l.defence
	if now.Sub(d.heard) > defendAnew {
		d.pause = 0
	}
	d.heard = now
	if d.due.IsZero() {
		d.due = reading.Later(now, d.last.Add(d.pause))
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

// tieBreak handles another prober of the same name: the one whose records sort later goes
// on, the other waits and probes again (§8.2). The gateway uses a substitute once it has waited
// for too long, so that a host that probes forever cannot leave it without a name.
func (r *responder) tieBreak(now time.Time, l *link, n *name, m *dns.Msg, from netip.Addr) {
	ours, claims := r.records(l, n).unique(), r.uniqueRecordsOfAllLinks()
	for _, of := range []string{n.instance(), n.host()} {
		named := func(records []dns.RR) []dns.RR {
			return slices.DeleteFunc(slices.Clone(records), func(record dns.RR) bool { return !sameName(record.Header().Name, of) })
		}
		theirs := named(m.Ns)
		known := !slices.ContainsFunc(theirs, func(record dns.RR) bool { return !contains(claims, record) })
		if known || slices.Compare(ordered(named(ours)), ordered(theirs)) >= 0 {
			continue
		}
		n.steps, n.due = 0, now.Add(tieBreakDelay)
		if now.Sub(n.tried) > reclaimEvery {
			r.recordConflict(now, l, n, m.Ns, from)
			r.lose(now, l, n)
		}
		return
	}
}
