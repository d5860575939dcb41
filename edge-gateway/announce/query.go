package announce

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
)

// receive handles a message. What is malformed, or not from the link, is
// ignored, as the RFC wants.
func (r *responder) receive(now time.Time, p packet) {
	l := r.linkOf(p)
	if l == nil || !local(l, p) {
		return
	}
	var m dns.Msg
	if err := m.Unpack(p.data); err != nil || m.Opcode != dns.OpcodeQuery || m.Rcode != dns.RcodeSuccess {
		return
	}
	if m.Response {
		if p.from.Port() == multicast.Port {
			r.handleResponse(now, l, &m, p.from.Addr().WithZone(""))
		}
		return
	}
	r.answerPair(now, l, &m)
	if r.yields(l) {
		r.yieldTo(now, l, &m, p.from.Addr().WithZone(""))
	}
	for _, n := range l.names() {
		if n.phase == probing {
			r.tieBreak(now, l, n, &m, p.from.Addr().WithZone(""))
		}
	}
	r.answerQuery(now, l, &m, p.from)
}

// linkOf is the link that a packet came from: by its interface, else by its
// sender's network.
func (r *responder) linkOf(p packet) *link {
	if p.link != 0 {
		return r.links[p.link]
	}
	for _, l := range r.sorted() {
		if multicast.Near(l.Prefixes, p.from.Addr()) {
			return l
		}
	}
	return nil
}

// local reports whether a packet is from its link (§11): multicast never crosses
// a router, unicast must come from a neighbour.
func local(l *link, p packet) bool {
	return p.to.IsMulticast() || multicast.Near(l.Prefixes, p.from.Addr())
}

// answerQuery answers.
func (r *responder) answerQuery(now time.Time, l *link, m *dns.Msg, from netip.AddrPort) {
	if len(m.Question) == 0 {
		forget(l, from.Addr(), m.Answer) // the rest of a truncated query
		return
	}
	ours := r.held(l, from.Addr())
	if len(ours) == 0 {
		return
	}
	if from.Port() != multicast.Port {
		r.answerLegacy(l, ours, m, from)
		return
	}
	alone := ours.wanted(m, func(q dns.Question) bool { return q.Qclass&cacheFlush != 0 })
	everyone := ours.wanted(m, func(q dns.Question) bool { return q.Qclass&cacheFlush == 0 })
	if !multicast.Near(l.Prefixes, from.Addr()) { // unicast might leave the link
		everyone, alone = slices.Concat(everyone, alone), nil
	}
	for _, record := range alone {
		// Others should hear now and then too (§5.4), and so should whoever shares a
		// prober's port.
		quarter := time.Duration(record.Header().Ttl) * time.Second / 4
		if said := l.said[record.String()]; now.Sub(said) >= quarter || len(m.Ns) > 0 {
			everyone = appendUnique(everyone, record)
		}
	}
	if len(alone) > 0 {
		answer := &dns.Msg{Answer: withCacheFlush(alone), Extra: withCacheFlush(ours.additional(alone))}
		answer.Id, answer.Response, answer.Authoritative = m.Id, true, true
		r.write(l, from, answer)
	}
	if len(everyone) > 0 {
		r.scheduleReply(now, l, m, from, everyone)
	}
}

// wanted are the records for some of a message's questions that its asker does
// not know yet. A message may have thousands of both, so what is known is looked
// for once a record, not once a question.
func (all names) wanted(m *dns.Msg, which func(dns.Question) bool) []dns.RR {
	var found []dns.RR
	for _, q := range m.Question {
		if which(q) {
			for _, r := range all {
				for _, record := range r.answers(q) {
					found = appendUnique(found, record)
				}
			}
		}
	}
	return slices.DeleteFunc(found, func(record dns.RR) bool { return isKnownAnswer(m.Answer, record) })
}

// answerLegacy answers a resolver that knows only unicast DNS: its id, its question,
// short lives, and no bit that it would take for another class (§6.7). Others
// than neighbours get no answer: it would be sent off the link, to whoever a
// forged sender's address belongs to.
func (r *responder) answerLegacy(l *link, ours names, m *dns.Msg, from netip.AddrPort) {
	found := ours.wanted(m, func(dns.Question) bool { return true })
	if len(found) == 0 || !multicast.Near(l.Prefixes, from.Addr()) {
		return
	}
	answer := &dns.Msg{
		Question: m.Question,
		Answer:   withTTL(found, legacyTTL),
		Extra:    withTTL(ours.additional(found), legacyTTL),
	}
	answer.Id, answer.Response, answer.Authoritative = m.Id, true, true
	r.write(l, from, answer)
}

// scheduleReply sends to everybody, at once or when it is time.
func (r *responder) scheduleReply(now time.Time, l *link, m *dns.Msg, from netip.AddrPort, found []dns.RR) {
	answer := reply{due: now, records: found, pause: repeatAfter}
	switch {
	case len(m.Ns) > 0: // a probe: its sender waits a quarter of a second for us
		answer.pause = defendAfter
	case m.Truncated && len(l.replies) < maxDeferredQueriers:
		answer.due, answer.asker = now.Add(truncatedDelay+r.upTo(sharedSpread)), from.Addr()
	case slices.ContainsFunc(found, shared): // others answer too
		answer.due = now.Add(sharedDelay + r.upTo(sharedSpread))
	}
	if !answer.due.After(now) {
		r.multicastNow(now, l, answer)
		return
	}
	// What waits already serves this asker too, unless another asker may still
	// make it unnecessary.
	for _, waiting := range l.replies {
		if !waiting.asker.IsValid() || waiting.asker == answer.asker {
			answer.records = slices.DeleteFunc(answer.records, func(record dns.RR) bool { return contains(waiting.records, record) })
		}
	}
	if len(answer.records) > 0 {
		l.replies = append(l.replies, answer)
	}
}

// multicastNow multicasts a reply without what everybody has just heard.
func (r *responder) multicastNow(now time.Time, l *link, answer reply) {
	fresh := slices.DeleteFunc(answer.records, func(record dns.RR) bool {
		said, ok := l.said[record.String()]
		return ok && now.Sub(said) < answer.pause
	})
	for _, record := range fresh {
		l.said[record.String()] = now
	}
	r.multicast(l, &dns.Msg{Answer: withCacheFlush(fresh), Extra: withCacheFlush(r.held(l, netip.Addr{}).additional(fresh))})
}

// forget drops from what waits for an asker what it now says it knows (§7.2).
func forget(l *link, asker netip.Addr, theirs []dns.RR) {
	for i := range l.replies {
		if l.replies[i].asker == asker {
			l.replies[i].records = slices.DeleteFunc(l.replies[i].records, func(record dns.RR) bool { return isKnownAnswer(theirs, record) })
		}
	}
	l.replies = slices.DeleteFunc(l.replies, func(reply reply) bool { return len(reply.records) == 0 })
}

func appendUnique(records []dns.RR, record dns.RR) []dns.RR {
	if contains(records, record) {
		return records
	}
	return append(records, record)
}
