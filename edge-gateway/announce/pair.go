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
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
	"coldaisle.dev/shared/reading"
)

// Gateways of one enrolment on one link are a pair: one is active and answers to
// the specified name; the others are standby, and take the name when the active one
// falls silent.
//
// They identify one another by mDNS. A gateway asks for the TXT record of
// NONCE.pair.monitor-gateway.local, with a fresh nonce. Each gateway answers with its
// id, whether it is active, and an HMAC-SHA256 over these and the nonce, keyed by the
// pair key. Thus an answer can be neither forged nor replayed. Enrolled gateways use
// their customer's key, which the API gives them; open ones use their site token, or
// the empty key without one.
//
// All messages go from port 5353 to the group: the firewalls of many machines close
// other ways, and a unicast answer may reach another responder of the machine (§15.1).
// Nobody announces periodically (§8.3 forbids it). A standby asks every second. §5.2
// wants repeated questions to become rarer, which a failover within seconds does not
// allow: it costs one packet a second each way.
const (
	askFirst  = time.Second      // after a link has appeared
	askEvery  = 10 * time.Second // routinely
	askActive = time.Second      // by a standby, of the active gateway
	// suspectAfter tolerates two lost or late answers before the standby probes for the name.
	// Probing takes a second, and the active gateway answers if it is alive. Together the
	// standby has the name within 5 seconds.
	suspectAfter = 2200 * time.Millisecond
	answerWithin = askEvery // how late an answer may be; the next question is asked by then
	// rememberFor is how long a silent gateway is remembered, and a claim of the name
	// reported: five routine questions may get lost.
	rememberFor   = time.Minute
	answersApart  = 100 * time.Millisecond
	maxPeers      = 8 // remembered gateways, and questions answered in one message
	pairAnswerTTL = 2 // seconds: 0 and 1 have meanings of their own (§10.1)
)

// pairSuffix follows the nonce.
const pairSuffix = ".pair." + multicast.Name + ".local."

// pair holds the other gateways of a link and the questions between them.
type pair struct {
	due       time.Time            // of the next question
	asked     time.Time            // the last one
	nonces    map[string]time.Time // of our recent questions
	questions []string             // nonces to answer
	answerDue time.Time
	answered  []string // the last ones; each question arrives by IPv4 and IPv6
	peers     gateways // verified
	foreign   gateways // of other enrolments, that claim to have the name
}

// gateways are the gateways heard recently, by id.
type gateways map[string]peer

// peer is another gateway.
type peer struct {
	by4, by6 netip.Addr // invalid until it was heard by IPv4 or IPv6
	active   bool
	heard    time.Time
}

// hear records a gateway's answer; ok is false if there are too many gateways.
func (g gateways) hear(now time.Time, id string, from netip.Addr, active bool) (p peer, ok bool) {
	p, known := g[id]
	if !known && len(g) >= maxPeers {
		return p, false
	}
	p.active, p.heard = active, now
	if from.Is4() {
		p.by4 = from
	} else {
		p.by6 = from
	}
	g[id] = p
	return p, true
}

func (g gateways) has(address netip.Addr) bool {
	for _, p := range g {
		if p.by4 == address || p.by6 == address {
			return true
		}
	}
	return false
}

// address returns the address to show, the IPv4 one if there is one.
func (p peer) address() netip.Addr {
	if p.by4.IsValid() {
		return p.by4
	}
	return p.by6
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

func (p *pair) forgetActive() {
	maps.DeleteFunc(p.peers, func(_ string, p peer) bool { return p.active })
}

func (p *pair) addresses() []string {
	var found []string
	for _, peer := range p.peers {
		found = append(found, peer.address().String())
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// stepPair sends the answers and questions that are due.
func (r *responder) stepPair(now time.Time, l *link) {
	p := &l.pair
	if len(p.questions) > 0 && !p.answerDue.After(now) {
		r.answerPair(l)
		p.answered, p.questions, p.answerDue = p.questions, nil, now.Add(answersApart)
	}
	if p.due.IsZero() || p.due.After(now) {
		return
	}
	silent := func(_ string, p peer) bool { return now.Sub(p.heard) > rememberFor }
	maps.DeleteFunc(p.nonces, func(_ string, t time.Time) bool { return now.Sub(t) > answerWithin })
	maps.DeleteFunc(p.peers, silent)
	maps.DeleteFunc(p.foreign, silent)
	var random [16]byte
	_, _ = crand.Read(random[:]) // never fails
	nonce := hex.EncodeToString(random[:])
	p.nonces[nonce], p.asked, p.due = now, now, now.Add(askEvery)
	if p.active() && !l.specified.held() {
		p.due = now.Add(askActive)
	}
	r.write(l, netip.AddrPort{}, &dns.Msg{Question: []dns.Question{
		{Name: nonce + pairSuffix, Qtype: dns.TypeTXT, Qclass: dns.ClassINET},
	}})
}

// askSoon brings the next question forward, to at most one a second.
func (r *responder) askSoon(now time.Time, l *link) {
	l.pair.due = reading.Earlier(l.pair.due, reading.Later(now, l.pair.asked.Add(askActive)))
}

// nonceOf is the nonce of a question or an answer; empty for another name.
func nonceOf(name string) string {
	nonce, ok := strings.CutSuffix(dns.CanonicalName(name), pairSuffix)
	if _, err := hex.DecodeString(nonce); !ok || err != nil || len(nonce) != 32 {
		return ""
	}
	return nonce
}

// isOurs reports whether a nonce is in our own question on any link: a machine with two
// interfaces in one network receives its own packets.
func (r *responder) isOurs(nonce string) bool {
	return slices.ContainsFunc(r.sorted(), func(l *link) bool { _, ok := l.pair.nonces[nonce]; return ok })
}

// hearQuestions collects the questions of other gateways. Questions that come together, as
// after a defence that several gateways have heard, are answered in one message.
func (r *responder) hearQuestions(now time.Time, l *link, m *dns.Msg) {
	p := &l.pair
	for _, q := range m.Question {
		nonce := nonceOf(q.Name)
		if nonce == "" || q.Qtype != dns.TypeTXT || r.isOurs(nonce) || slices.Contains(p.answered, nonce) || slices.Contains(p.questions, nonce) {
			continue
		}
		if len(p.peers) == 0 {
			r.askSoon(now, l) // a new gateway
		}
		if len(p.questions) < maxPeers {
			p.questions = append(p.questions, nonce)
		}
	}
}

func (r *responder) answerPair(l *link) {
	role := RoleStandby
	if l.specified.held() && !r.revoked() {
		role = RoleActive
	}
	answer := &dns.Msg{}
	for _, nonce := range l.pair.questions {
		answer.Answer = append(answer.Answer, &dns.TXT{
			Hdr: dns.RR_Header{Name: nonce + pairSuffix, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: pairAnswerTTL},
			Txt: []string{"id=" + r.id, "role=" + string(role), "proof=" + r.proof(nonce, r.id, role)},
		})
	}
	r.multicast(l, answer)
}

// proof authenticates an answer: only a holder of the pair key can compute it.
func (r *responder) proof(nonce, id string, role Role) string {
	key := []byte(r.config.SiteToken)
	if r.config.Enrolment != nil {
		key = r.config.Enrolment.PairKey()
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("coldaisle pair 1\n" + nonce + "\n" + id + "\n" + string(role)))
	return hex.EncodeToString(mac.Sum(nil))
}

// hearAnswers verifies the answers of other gateways.
func (r *responder) hearAnswers(now time.Time, l *link, m *dns.Msg, from netip.Addr) {
	for _, record := range m.Answer {
		text, ok := record.(*dns.TXT)
		if !ok {
			continue
		}
		nonce := nonceOf(text.Hdr.Name)
		if asked, ok := l.pair.nonces[nonce]; !ok || now.Sub(asked) > answerWithin {
			continue
		}
		said := map[string]string{}
		for _, line := range text.Txt {
			key, value, _ := strings.Cut(line, "=")
			said[key] = value
		}
		id, role := said["id"], Role(said["role"])
		switch {
		case id == r.id:
		case hmac.Equal([]byte(said["proof"]), []byte(r.proof(nonce, id, role))):
			r.addPeer(now, l, id, from, role)
		case role == RoleActive:
			if other, ok := l.pair.foreign.hear(now, id, from, true); ok {
				from = other.address()
			}
			l.rival.claims(now, from)
		default:
			delete(l.pair.foreign, id)
		}
	}
}

// addPeer records a verified gateway of the same enrolment. If both have the name, because
// two networks were joined, the lower id keeps it.
func (r *responder) addPeer(now time.Time, l *link, id string, from netip.Addr, role Role) {
	if _, ok := l.pair.peers.hear(now, id, from, role == RoleActive); !ok {
		return
	}
	if l.pair.peers.has(l.rival.address) {
		l.rival = rival{}
	}
	switch held := l.specified.held(); {
	case role != RoleActive:
		return
	case held && id > r.id:
		r.defend(now, l)
		return
	case held:
		r.yield(now, l)
	case l.specified.phase == probing:
		r.lose(now, l, l.specified)
	}
	l.specified.due = now.Add(suspectAfter)
	r.askSoon(now, l)
}

// yields reports whether the gateway has the specified name but must leave it to a claimant:
// it is revoked, or it has no IPv4 address, which nodes need, and the other of its pair has one.
func (r *responder) yields(l *link, claims []dns.RR, from netip.Addr) bool {
	return l.specified.held() && (r.revoked() || !l.hasIPv4() && l.pair.peers.has(from) && l.specified.claimant(claims, from).Is4())
}

func (r *responder) revoked() bool { return r.config.Enrolment != nil && r.config.Enrolment.Revoked() }

// yield leaves the specified name to another gateway. It withdraws only the addresses: the
// other records of the name are the same at both.
func (r *responder) yield(now time.Time, l *link) {
	r.multicast(l, &dns.Msg{Answer: withTTL(r.records(l, l.specified).address, 0)})
	l.pending, l.defence = reply{}, defence{}
	r.lose(now, l, l.specified)
}

// Role is the role of a gateway on a link.
type Role string

// The roles. A gateway that is alone is active.
const (
	RoleActive   Role = "active"   // answers to the specified name
	RoleStandby  Role = "standby"  // another gateway of the pair does
	RoleConflict Role = "conflict" // somebody else claims it
)

// role returns the role on a link and the problem with the name. Both are empty during the
// first probe for the name.
func (l *link) role(now time.Time) (role Role, problem string) {
	claimed := l.rival.isCurrent(now)
	switch {
	case l.specified.held() && !claimed:
		return RoleActive, ""
	case l.pair.active() && !l.specified.held():
		return RoleStandby, ""
	case !claimed:
		return "", ""
	}
	who, does := "another device", "has"
	if l.pair.foreign.has(l.rival.address) {
		who = "a gateway of another enrolment"
	}
	if l.specified.held() {
		does = "also claims"
	}
	return RoleConflict, who + ", " + l.rival.address.String() + ", " + does + " " + plain(l.specified.host())
}
