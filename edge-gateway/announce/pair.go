package announce

import (
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Gateways of one enrolment on one link are a pair: one is active and answers to
// the specified name, each other one is standby, and takes the name when the active
// one is silent.
//
// They know one another by a question and an answer of mDNS. A gateway asks for the
// TXT record of NONCE.pair.monitor-gateway.local, with a nonce that it has just made.
// Each gateway answers with its id, whether it is active, and an HMAC-SHA256 over
// these and the nonce, keyed by the pair key. So an answer cannot be made without
// the key, nor be used again. Enrolled gateways have the key of their customer's, which
// the API gives them; open ones their site token, and without one the empty key.
//
// All goes from and to port 5353 and the group: other ways are closed by the
// firewalls of many machines, and a unicast answer may reach another responder of
// the machine (§15.1). Nobody announces periodically (§8.3 forbids it). A standby asks
// every second: §5.2 has a question that is asked again and again become rarer, which
// no failover within seconds can, so one packet a second each way is what it costs.
const (
	askFirst      = time.Second      // after a link has come
	askEvery      = 10 * time.Second // without reason
	askActive     = time.Second      // by a standby, of the active gateway
	suspectAfter  = 2200 * time.Millisecond
	peerFor       = 35 * time.Second // is a gateway remembered that does not answer
	answersApart  = 100 * time.Millisecond
	maxPeers      = 8
	nonceFor      = 3 * time.Second
	pairAnswerTTL = 2 // seconds: 0 and 1 have meanings of their own (§10.1)
)

// pairSuffix follows the nonce.
func (r *responder) pairSuffix() string { return ".pair." + r.config.Name + ".local." }

// pair is what a link knows of other gateways.
type pair struct {
	due      time.Time            // of the next question
	asked    time.Time            // the last one
	answered time.Time            // somebody else's
	nonces   map[string]time.Time // asked lately
	peers    map[string]peer      // verified, by id
}

// peer is another gateway of the same enrolment.
type peer struct {
	by4, by6 netip.Addr // each invalid before it was heard so
	active   bool
	heard    time.Time
}

func (p *peer) has(address netip.Addr) bool { return p.by4 == address || p.by6 == address }

// address is that by which people know a machine.
func (p *peer) address() netip.Addr {
	if p.by4.IsValid() {
		return p.by4
	}
	return p.by6
}

// isMember reports whether an address is that of a verified gateway.
func (p *pair) isMember(address netip.Addr) bool {
	for _, peer := range p.peers {
		if peer.has(address) {
			return true
		}
	}
	return false
}

// active reports whether another gateway of the pair has the name.
func (p *pair) active() bool {
	for _, peer := range p.peers {
		if peer.active {
			return true
		}
	}
	return false
}

// forgetActive forgets who had the name.
func (p *pair) forgetActive() {
	maps.DeleteFunc(p.peers, func(_ string, p peer) bool { return p.active })
}

// stepPair asks when it is time.
func (r *responder) stepPair(now time.Time, l *link) {
	if l.pair.due.IsZero() || l.pair.due.After(now) {
		return
	}
	old := func(t time.Time, after time.Duration) bool { return now.Sub(t) > after }
	maps.DeleteFunc(l.pair.nonces, func(_ string, t time.Time) bool { return old(t, nonceFor) })
	maps.DeleteFunc(l.pair.peers, func(_ string, p peer) bool { return old(p.heard, peerFor) })
	if l.pair.nonces == nil {
		l.pair.nonces, l.pair.peers = map[string]time.Time{}, map[string]peer{}
	}
	var random [16]byte
	_, _ = crand.Read(random[:]) // never fails
	nonce := hex.EncodeToString(random[:])
	l.pair.nonces[nonce], l.pair.asked, l.pair.due = now, now, now.Add(askEvery)
	if l.pair.active() && !l.specified.held() {
		l.pair.due = now.Add(askActive)
	}
	r.write(l, netip.AddrPort{}, &dns.Msg{Question: []dns.Question{
		{Name: nonce + r.pairSuffix(), Qtype: dns.TypeTXT, Qclass: dns.ClassINET},
	}})
}

// askSoon asks before it is time, once a second at most.
func (r *responder) askSoon(now time.Time, l *link) {
	due := now
	if next := l.pair.asked.Add(askActive); next.After(now) {
		due = next
	}
	if due.Before(l.pair.due) {
		l.pair.due = due
	}
}

// nonceOf is the nonce of a question or an answer; empty for another name.
func (r *responder) nonceOf(name string) string {
	nonce, ok := strings.CutSuffix(dns.CanonicalName(name), r.pairSuffix())
	if _, err := hex.DecodeString(nonce); !ok || err != nil || len(nonce) != 32 {
		return ""
	}
	return nonce
}

// isOurs reports whether we asked so, on whichever link: a machine with two
// interfaces in one network hears itself.
func (r *responder) isOurs(nonce string) bool {
	return slices.ContainsFunc(r.sorted(), func(l *link) bool { _, ok := l.pair.nonces[nonce]; return ok })
}

// answerPair says who we are to another gateway.
func (r *responder) answerPair(now time.Time, l *link, m *dns.Msg) {
	for _, q := range m.Question {
		nonce := r.nonceOf(q.Name)
		if nonce == "" || q.Qtype != dns.TypeTXT || r.isOurs(nonce) {
			continue
		}
		if len(l.pair.peers) == 0 {
			r.askSoon(now, l) // somebody new
		}
		if now.Sub(l.pair.answered) < answersApart {
			return
		}
		l.pair.answered = now
		role := RoleStandby
		if l.specified.held() {
			role = RoleActive
		}
		r.multicast(l, &dns.Msg{Answer: []dns.RR{&dns.TXT{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: pairAnswerTTL},
			Txt: []string{"id=" + r.id, "role=" + string(role), "proof=" + r.proof(nonce, r.id, role)},
		}}})
		return
	}
}

// proof is what nobody can say who does not know the key.
func (r *responder) proof(nonce, id string, role Role) string {
	key := []byte(r.config.SiteToken)
	if r.config.Enrolment != nil {
		key = r.config.Enrolment.PairKey()
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("coldaisle pair 1\n" + nonce + "\n" + id + "\n" + string(role)))
	return hex.EncodeToString(mac.Sum(nil))
}

// hearPair hears what other gateways say of themselves.
func (r *responder) hearPair(now time.Time, l *link, m *dns.Msg, from netip.Addr) {
	for _, record := range m.Answer {
		text, ok := record.(*dns.TXT)
		if !ok {
			continue
		}
		nonce := r.nonceOf(text.Hdr.Name)
		if asked, ok := l.pair.nonces[nonce]; !ok || now.Sub(asked) > nonceFor {
			continue
		}
		said := map[string]string{}
		for _, line := range text.Txt {
			key, value, _ := strings.Cut(line, "=")
			said[key] = value
		}
		role := Role(said["role"])
		switch {
		case said["id"] == r.id:
		case hmac.Equal([]byte(said["proof"]), []byte(r.proof(nonce, said["id"], role))):
			r.meet(now, l, said["id"], from, role)
		case role == RoleActive:
			l.rival.claims(now, from)
			l.rival.gateway = true
		}
	}
}

// meet takes note of another gateway of the same enrolment. Where both have the
// name, which happens when two networks become one, the lower id keeps it.
func (r *responder) meet(now time.Time, l *link, id string, from netip.Addr, role Role) {
	p, known := l.pair.peers[id]
	if !known && len(l.pair.peers) >= maxPeers {
		return
	}
	p.active, p.heard = role == RoleActive, now
	if from.Is4() {
		p.by4 = from
	} else {
		p.by6 = from
	}
	l.pair.peers[id] = p
	if p.has(l.rival.address) {
		l.rival = rival{}
	}
	if !p.active {
		return
	}
	switch {
	case !l.specified.held():
		if l.specified.phase == probing {
			r.lose(now, l, l.specified)
		}
	case id < r.id:
		r.yield(now, l)
	default:
		r.defend(now, l)
		return
	}
	l.specified.due = now.Add(suspectAfter)
	r.askSoon(now, l)
}

// yields reports whether the specified name is held and is whoever's who wants it.
func (r *responder) yields(l *link) bool {
	return l.specified.held() && r.config.Enrolment != nil && r.config.Enrolment.Revoked()
}

// yieldTo leaves the specified name to who probes for it, unless nobody else does.
func (r *responder) yieldTo(now time.Time, l *link, probe *dns.Msg, from netip.Addr) {
	claims := sync.OnceValue(r.uniqueRecordsOfAllLinks)
	if slices.ContainsFunc(probe.Ns, func(record dns.RR) bool { return l.specified.has(record) && r.conflicts(claims, record, from) }) {
		r.yield(now, l)
	}
}

// yield leaves the specified name to another gateway. Only the
// addresses are taken back: the rest of the name's records is the same at both.
func (r *responder) yield(now time.Time, l *link) {
	r.multicast(l, &dns.Msg{Answer: withTTL(r.records(l, l.specified).address, 0)})
	l.replies, l.defence = nil, defence{}
	r.lose(now, l, l.specified)
}

// Role is a gateway's part among those of its link.
type Role string

// The roles. A gateway that is alone is active.
const (
	RoleActive   Role = "active"   // answers to the specified name
	RoleStandby  Role = "standby"  // another gateway of the pair does
	RoleConflict Role = "conflict" // somebody else claims it
)

// role is that of a link, with who else claims the name; empty while the name is
// probed for the first time.
func (l *link) role(now time.Time) (Role, *rival) {
	claimed := l.rival.isCurrent(now)
	switch {
	case l.specified.held() && !claimed:
		return RoleActive, nil
	case l.pair.active() && !l.specified.held():
		return RoleStandby, nil
	case claimed:
		return RoleConflict, &l.rival
	default:
		return "", nil
	}
}

// addresses are those of the other gateways of the pair, sorted.
func (p *pair) addresses() []string {
	var found []string
	for _, peer := range p.peers {
		found = append(found, peer.address().String())
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// String says what a person should know of a rival.
func (v *rival) String(host string, held bool) string {
	who, what := "another device", "has"
	if v.gateway {
		who = "a gateway of another enrolment"
	}
	if held {
		what = "also claims"
	}
	if !v.address.IsValid() {
		return who + " " + what + " " + host
	}
	return who + ", " + v.address.String() + ", " + what + " " + host
}
