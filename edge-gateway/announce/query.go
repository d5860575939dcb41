package announce

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
)

// receive handles a message. It ignores one that is malformed or not from the link, as the RFC
// demands.
func (r *responder) receive(now time.Time, p packet) {
	l := r.links[p.link]
	if l == nil || !local(l, p) {
		return
	}
	var m dns.Msg
	if err := m.Unpack(p.data); err != nil || m.Opcode != dns.OpcodeQuery || m.Rcode != dns.RcodeSuccess {
		return
	}
	for _, record := range slices.Concat(m.Answer, m.Ns, m.Extra) {
		record.Header().Class &^= cacheFlush // records are compared without it
	}
	from := p.from.Addr().WithZone("")
	if m.Response {
		if p.from.Port() == multicast.Port {
			r.handleResponse(now, l, &m, from)
		}
		return
	}
	r.hearQuestions(now, l, &m)
	if r.yields(l, m.Ns, from) && r.conflicts(l.specified, m.Ns, from) {
		r.yield(now, l) // to another host that probes for the name
	}
	for _, n := range l.names() {
		if n.phase == probing {
			r.tieBreak(now, l, n, &m, from)
		}
	}
	r.answerQuery(now, l, &m, p.from)
}

// local reports whether a packet is from its link (§11): multicast never crosses
// a router, unicast must come from a neighbour.
func local(l *link, p packet) bool {
	return p.to.IsMulticast() || multicast.Near(l.Prefixes, p.from.Addr())
}

func (r *responder) answerQuery(now time.Time, l *link, m *dns.Msg, from netip.AddrPort) {
	ours := r.held(l, from.Addr())
	near := multicast.Near(l.Prefixes, from.Addr())
	if from.Port() != multicast.Port {
		if near { // else the answer would leave the link, to the owner of a forged address
			r.answerLegacy(l, ours, m, from)
		}
		return
	}
	alone := ours.wanted(m, func(q dns.Question) bool { return q.Qclass&cacheFlush != 0 })
	everyone := ours.wanted(m, func(q dns.Question) bool { return q.Qclass&cacheFlush == 0 })
	if !near { // unicast might leave the link
		everyone, alone = slices.Concat(everyone, alone), nil
	}
	for _, record := range alone {
		// A unicast answer is also multicast once in a quarter of the record's lifetime
		// (§5.4), and to a prober, whose port others may share.
		quarter := time.Duration(record.Header().Ttl) * time.Second / 4
		if said := l.said[record.String()]; now.Sub(said) >= quarter || len(m.Ns) > 0 {
			everyone = appendUnique(everyone, record)
		}
	}
	if len(alone) > 0 {
		r.reply(l, from, m, &dns.Msg{Answer: withCacheFlush(alone), Extra: withCacheFlush(ours.additional(alone))})
	}
	switch {
	case len(everyone) == 0:
	case len(m.Ns) > 0: // a probe: its sender waits a quarter of a second for us
		r.multicastReply(now, l, everyone, defendAfter)
	case slices.ContainsFunc(everyone, shared): // others answer too
		if l.pending.due.IsZero() {
			l.pending.due = now.Add(sharedDelay + r.upTo(sharedSpread))
		}
		for _, record := range everyone {
			l.pending.records = appendUnique(l.pending.records, record)
		}
	default:
		r.multicastReply(now, l, everyone, repeatAfter)
	}
}

// answerLegacy answers a resolver that knows only unicast DNS: with its id and question,
// short lifetimes, and without the cache-flush bit, which would look like another class (§6.7).
func (r *responder) answerLegacy(l *link, ours names, m *dns.Msg, from netip.AddrPort) {
	if found := ours.wanted(m, func(dns.Question) bool { return true }); len(found) > 0 {
		r.reply(l, from, m, &dns.Msg{Question: m.Question, Answer: withTTL(found, legacyTTL), Extra: withTTL(ours.additional(found), legacyTTL)})
	}
}

func (r *responder) reply(l *link, to netip.AddrPort, asked, answer *dns.Msg) {
	answer.Id, answer.Response, answer.Authoritative = asked.Id, true, true
	r.write(l, to, answer)
}

// multicastReply multicasts records, except those that were multicast within the last pause.
func (r *responder) multicastReply(now time.Time, l *link, records []dns.RR, pause time.Duration) {
	fresh := slices.DeleteFunc(records, func(record dns.RR) bool {
		said, ok := l.said[record.String()]
		return ok && now.Sub(said) < pause
	})
	for _, record := range fresh {
		l.said[record.String()] = now
	}
	r.multicast(l, &dns.Msg{Answer: withCacheFlush(fresh), Extra: withCacheFlush(r.held(l, netip.Addr{}).additional(fresh))})
}
