package announce

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// handleResponse looks for records of another host that conflict with our names
// (RFC 6762 §9).
func (r *responder) handleResponse(now time.Time, l *link, m *dns.Msg, from netip.Addr) {
	claims := r.uniqueRecordsOfAllLinks()
	foreign := slices.ContainsFunc(slices.Concat(m.Answer, m.Extra), func(record dns.RR) bool {
		return record.Header().Ttl > 0 && r.conflictsWith(l, claims, record, from)
	})
	if !foreign {
		return
	}
	r.conflicts = append(r.conflicts, now)
	r.conflicts = slices.DeleteFunc(r.conflicts, func(t time.Time) bool { return now.Sub(t) > conflictWindow })
	wait := r.upTo(probeEvery)
	if len(r.conflicts) >= manyConflicts {
		wait = conflictWaits
	}
	if l.phase != probing {
		// The record may be our own, cached by another host from another network.
		// Probe again before renaming (§9).
		l.phase, l.steps, l.due, l.replies = probing, 0, now.Add(wait), nil
		return
	}
	r.rename(now.Add(wait))
}

// conflictsWith reports whether a record of another host has one of our names and
// different data than our claims.
func (r *responder) conflictsWith(l *link, claims []dns.RR, record dns.RR, from netip.Addr) bool {
	name := record.Header().Name
	if !sameName(name, r.instance()) && !sameName(name, r.host()) {
		return false
	}
	switch record.Header().Rrtype {
	case dns.TypeSRV, dns.TypeTXT, dns.TypeA:
		return !contains(claims, record)
	case dns.TypeAAAA:
		// This machine's own responder may announce its addresses.
		return l.phase == probing && !r.own(from)
	default:
		return false
	}
}

// uniqueRecordsOfAllLinks returns our unique records on every link: a machine with
// two interfaces in one network receives its own announcements.
func (r *responder) uniqueRecordsOfAllLinks() []dns.RR {
	var all []dns.RR
	for _, l := range r.sorted() {
		for _, record := range r.records(l).unique() {
			all = appendUnique(all, record)
		}
	}
	return all
}

// own reports whether an address is this machine's.
func (r *responder) own(address netip.Addr) bool {
	return slices.ContainsFunc(r.sorted(), func(l *link) bool {
		return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr() == address })
	})
}

// rename takes the next name, on all links, and what was announced back.
func (r *responder) rename(due time.Time) {
	for _, l := range r.sorted() {
		if l.phase != probing {
			// The names themselves are the other one's now; only the pointer is ours.
			r.multicast(l, &dns.Msg{Answer: withTTL([]dns.RR{r.records(l).pointer}, 0)})
		}
	}
	r.number++
	for _, l := range r.links {
		l.phase, l.steps, l.due, l.replies = probing, 0, due, nil
		clear(l.said)
	}
}

// tieBreak meets another prober of the same name: the one whose records come
// later in order goes on, the other waits and asks again (§8.2).
func (r *responder) tieBreak(now time.Time, l *link, m *dns.Msg) {
	ours, claims := r.records(l).unique(), r.uniqueRecordsOfAllLinks()
	for _, name := range []string{r.instance(), r.host()} {
		of := func(records []dns.RR) []dns.RR {
			return slices.DeleteFunc(slices.Clone(records), func(record dns.RR) bool { return !sameName(record.Header().Name, name) })
		}
		theirs := of(m.Ns)
		if len(theirs) == 0 || !slices.ContainsFunc(theirs, func(record dns.RR) bool { return !contains(claims, record) }) {
			continue
		}
		if compare(of(ours), theirs) < 0 {
			l.steps, l.due = 0, now.Add(tieBreakDelay)
			return
		}
	}
}
