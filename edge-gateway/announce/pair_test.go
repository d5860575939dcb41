package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
	"coldaisle.dev/shared/must"
)

// roles are what the gateways are on the wired link, sorted.
func roles(sites ...*site) []string {
	var found []string
	for _, s := range sites {
		found = append(found, s.is(eth))
	}
	slices.Sort(found)
	return found
}

// is tells what the gateway is on a link: its role, its name and how far it has claimed that.
func (s *site) is(index int) string {
	s.t.Helper()
	l := s.on(index)
	name := "specified"
	if l.Host != "monitor-gateway.local" {
		must.Equal(s.t, "the gateway's own name", "monitor-gateway-"+s.suffix()+".local", l.Host)
		name = "own"
	}
	return string(l.Role) + " " + name + " " + l.Phase
}

// suffix ends the name of its own: three bytes of a hardware address.
func (s *site) suffix() string { return strings.ReplaceAll(s.links[0].Hardware[3:].String(), ":", "") }

// TestPair holds contract 8.15.
func TestPair(t *testing.T) {
	t.Parallel()
	for title, head := range map[string]time.Duration{"at once": 0, "a moment later": 300 * time.Millisecond, "an hour later": time.Hour, "with its network": 10 * time.Second} {
		for _, token := range []string{"", "of the site"} {
			t.Run(title+" "+token, func(t *testing.T) {
				t.Parallel()
				first, second := newSite(t, 1), neighbour(t)
				first.config.SiteToken, second.config.SiteToken = token, token
				first.update(first.now, first.links)
				first.pass(head)
				if head > time.Second {
					first.take()
				}
				if title == "with its network" { // where it has the name, too
					second.start()
				} else {
					second.now = first.now
					second.update(second.now, second.links)
				}
				live(20*time.Second, nil, first, second)
				must.Equal(t, "the pair", []string{"active specified ready", "standby own ready"}, roles(first, second))
				must.Hold(t, head <= time.Minute || first.on(eth).Role == RoleActive, "the one that was there gave its name up")
				must.Equal(t, "problems", "", first.state(first.now).Problem+second.state(second.now).Problem)
				must.Equal(t, "the first knows of", []string{"192.168.1.30"}, first.on(eth).Peers)
			})
		}
	}
}

var isPair = [2]string{"active specified ready", "standby own ready"}

// pairUp is an active gateway and its standby, in this order.
func pairUp(t *testing.T) (active, standby *site) {
	t.Helper()
	active, standby = started(t), neighbour(t)
	standby.now = active.now
	standby.update(standby.now, standby.links)
	live(20*time.Second, nil, active, standby)
	must.Equal(t, "the pair", isPair, [2]string{active.is(eth), standby.is(eth)})
	return active, standby
}

// TestStandbyTakesOver kills the active gateway at every moment of a second, and
// holds that the standby has the name in time, and makes no storm while it waits.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after < time.Second; after += 100 * time.Millisecond {
		active, standby := pairUp(t)
		standby.sent, active.sent = nil, nil
		sent := 0
		for range 10 {
			standby.sent = nil
			live(time.Second, nil, active, standby)
			sent += len(standby.sent)
		}
		must.Hold(t, sent <= 12, "a standby sends %d messages in 10 seconds", sent)
		live(after, nil, active, standby)
		active.sent = nil // what it had not sent yet dies with it
		killed := standby.now
		for standby.on(eth).Host != "monitor-gateway.local" && standby.now.Sub(killed) < time.Minute {
			standby.pass(10 * time.Millisecond)
		}
		if took := standby.now.Sub(killed); took > 3500*time.Millisecond {
			t.Errorf("killed %v into the second, the standby has the name after %v", after, took)
		}
		// The other comes back, and leaves the name where it is.
		active.responder.links, active.id = map[int]*link{}, "0000000000000000"
		active.now = standby.now
		active.update(active.now, active.links)
		live(10*time.Second, nil, standby, active)
		must.Equal(t, "afterwards they are", isPair, [2]string{standby.is(eth), active.is(eth)})
	}
}

// TestStandbyOnEveryLink holds that a pair on two links judges on site, whichever link has lost
// its cable for a moment; a link of one gateway alone is of no account.
func TestStandbyOnEveryLink(t *testing.T) {
	t.Parallel()
	met := []string{"192.168.1.30"}
	for _, c := range []struct {
		other LinkState
		want  bool
	}{
		{LinkState{Role: RoleStandby, Peers: met}, true},
		{LinkState{Role: RoleActive, Peers: met}, false},
		{LinkState{Role: RoleActive}, true},
	} {
		s := State{Role: RoleStandby, Links: []LinkState{{Role: RoleStandby, Peers: met}, c.other}}
		must.Equal(t, fmt.Sprint("standby beside ", c.other), c.want, s.Standby())
	}
	must.Equal(t, "standby without a link", false, State{}.Standby())
}

// TestAnotherEnrolmentIsNoPair holds (contract 8.15) that a gateway without our token can neither
// take the name nor be waited for.
func TestAnotherEnrolmentIsNoPair(t *testing.T) {
	t.Parallel()
	for title, tokens := range map[string][2]string{
		"two sites":                   {"one", "two"},
		"enrolled beside an open one": {"one", ""},
		"open beside an enrolled one": {"", "two"},
	} {
		for joined, merged := range map[string]bool{"later": false, "with its network": true} {
			t.Run(title+" "+joined, func(t *testing.T) {
				t.Parallel()
				first, second := newSite(t, 1), neighbour(t)
				first.config.SiteToken, second.config.SiteToken = tokens[0], tokens[1]
				second.id = "0000000000000000" // which would win among our own
				first.start()
				if merged {
					second.start()
				}
				if second.now.Before(first.now) {
					second.now = first.now
					second.update(second.now, second.links)
				}
				live(30*time.Second, nil, first, second)
				one, other := first.on(eth), second.on(eth)
				must.Equal(t, "they know of", 0, len(one.Peers)+len(other.Peers))
				const foreign = "a gateway of another enrolment, 192.168.1."
				if merged {
					must.Equal(t, "they are", []string{"conflict specified ready", "conflict specified ready"}, roles(first, second))
					must.Equal(t, "the second says", foreign+"20, also claims monitor-gateway.local", other.Problem)
					must.Equal(t, "the first says", foreign+"30, also claims monitor-gateway.local", one.Problem)
					return
				}
				must.Equal(t, "the first is", "active specified ready", first.is(eth))
				must.Equal(t, "the second's role", RoleConflict, other.Role)
				must.Equal(t, "the second says", foreign+"20, has monitor-gateway.local", other.Problem)
			})
		}
	}
}

// ofCustomer is an enrolment.
type ofCustomer struct {
	key     string
	revoked bool
}

func (c *ofCustomer) PairKey() []byte { return []byte(c.key) }
func (c *ofCustomer) Revoked() bool   { return c.revoked }

// TestEnrolledAreAPairOfTheirOwn (contract 8.15): whatever site token it has, an enrolled
// gateway is a pair with those of its customer alone.
func TestEnrolledAreAPairOfTheirOwn(t *testing.T) {
	t.Parallel()
	one, other := &ofCustomer{key: "key of a customer"}, &ofCustomer{key: "key of another"}
	for title, c := range map[string]struct {
		enrolments [2]*ofCustomer
		tokens     [2]string
		pair       bool
	}{
		"one customer":                        {enrolments: [2]*ofCustomer{one, one}, pair: true},
		"one customer, two tokens":            {enrolments: [2]*ofCustomer{one, one}, tokens: [2]string{"a", "b"}, pair: true},
		"two customers":                       {enrolments: [2]*ofCustomer{one, other}},
		"two customers, one token":            {enrolments: [2]*ofCustomer{one, other}, tokens: [2]string{"a", "a"}},
		"enrolled and open":                   {enrolments: [2]*ofCustomer{one, nil}},
		"enrolled and open, one token":        {enrolments: [2]*ofCustomer{one, nil}, tokens: [2]string{"a", "a"}},
		"enrolled and open, which has no key": {enrolments: [2]*ofCustomer{{}, nil}, tokens: [2]string{"a", "a"}},
	} {
		first, second := newSite(t, 1), neighbour(t)
		for n, s := range []*site{first, second} {
			s.config.SiteToken = c.tokens[n]
			if c.enrolments[n] != nil {
				s.config.Enrolment = c.enrolments[n]
			}
			s.update(s.now, s.links)
		}
		live(20*time.Second, nil, first, second)
		want := []string{"active specified ready", "conflict own ready"}
		if c.pair {
			want[1] = "standby own ready"
		}
		must.Equal(t, title+": the pair", want, roles(first, second))
	}
}

// TestRevokedLeavesItsName (contract 8.15) revokes the active gateway of a pair: the other has the
// name within seconds, and keeps it.
func TestRevokedLeavesItsName(t *testing.T) {
	t.Parallel()
	for title, same := range map[string]bool{"to the other of its pair": true, "to a replacement": false} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			enrolments := []*ofCustomer{{key: "of both"}, {key: "of both"}}
			if !same {
				enrolments[1].key = "of the new one"
			}
			first, second := newSite(t, 1), neighbour(t)
			first.config.Enrolment, second.config.Enrolment = enrolments[0], enrolments[1]
			first.start()
			second.now = first.now
			second.update(second.now, second.links)
			live(20*time.Second, nil, first, second)
			must.Equal(t, "the first's name before", "monitor-gateway.local", first.on(eth).Host)

			enrolments[0].revoked, enrolments[0].key = true, "of nobody else"
			live(13*time.Second, nil, first, second)
			got := second.is(eth)
			must.Hold(t, got == "active specified ready" || got == "active specified announcing", "the second is %s", got)
			live(2*time.Minute, nil, first, second)
			must.Equal(t, "the pair", []string{"active specified ready", "conflict own ready"}, roles(first, second))
			must.Equal(t, "the revoked one", "a gateway of another enrolment, 192.168.1.30, has monitor-gateway.local", first.on(eth).Problem)
		})
	}
	t.Run("to nobody", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		s.config.Enrolment = &ofCustomer{revoked: true}
		s.start()
		question := ask(specified, dns.TypeANY, dns.ClassINET)
		question.Ns = s.records(s.responder.links[eth], s.responder.links[eth].specified).unique()
		s.from(eth, "192.168.1.20:5353", question) // its own probe, by its other interface
		s.from(eth, "192.168.1.77:5353", ask(specified, dns.TypeA, dns.ClassINET))
		must.Equal(t, "alone it is", "active specified ready", s.is(eth))
	})
	t.Run("which another device takes", func(t *testing.T) {
		t.Parallel()
		s := started(t)
		s.config.Enrolment = &ofCustomer{revoked: true}
		s.from(eth, "192.168.1.66:5353", response(claim()))
		must.Contain(t, "claimed by another it", s.is(eth), " own ")
	})
}

// asked returns the nonce of the question that a gateway has asked on the wired link, if any.
func (s *site) asked() string {
	for _, l := range s.takeAll() {
		if len(l.m.Question) == 1 && l.link == eth && nonceOf(l.m.Question[0].Name) != "" {
			return nonceOf(l.m.Question[0].Name)
		}
	}
	return ""
}

// nextNonce returns the nonce of the next question, which comes within ten seconds.
func (s *site) nextNonce() string {
	s.t.Helper()
	s.takeAll()
	s.pass(askEvery + time.Second)
	nonce := s.asked()
	if nonce == "" {
		s.t.Fatal("no question")
	}
	return nonce
}

// answer has another gateway answer a question.
func (s *site) answer(from, nonce, id string, role Role, proof string) {
	s.t.Helper()
	s.from(eth, from, response(&dns.TXT{
		Hdr: dns.RR_Header{Name: nonce + pairSuffix, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 2},
		Txt: []string{"id=" + id, "role=" + string(role), "proof=" + proof},
	}))
}

// answers has another gateway answer a question truly.
func (s *site) answers(other *site, nonce string, role Role) {
	s.t.Helper()
	s.answer("192.168.1.30:5353", nonce, other.id, role, other.proof(nonce, other.id, role))
}

// TestNewcomerIsAskedAtOnce asks whoever asks, so that a pair is one within a second, and
// asks the gateways that it knows no sooner than before.
func TestNewcomerIsAskedAtOnce(t *testing.T) {
	t.Parallel()
	s, other := started(t), neighbour(t)
	for s.asked() == "" {
		s.pass(100 * time.Millisecond)
	}
	s.pass(2 * time.Second)
	question := func(nonce string) *dns.Msg { return ask(nonce+pairSuffix, dns.TypeTXT, dns.ClassINET) }
	s.from(eth, "192.168.1.30:5353", question("00112233445566778899aabbccddeeff"))
	nonce := s.asked()
	if nonce == "" {
		t.Fatal("a newcomer is not asked")
	}
	s.answers(other, nonce, RoleStandby)
	s.pass(2 * time.Second)
	s.takeAll()
	s.from(eth, "192.168.1.30:5353", question("ffeeddccbbaa99887766554433221100"))
	must.Equal(t, "asked of one that is known, before it is time", "", s.asked())
	must.Equal(t, "peers", []string{"192.168.1.30"}, s.on(eth).Peers)
}

// TestProbeEndsWhenTheActiveOneAnswers has a standby probe, since the active one was silent,
// and hear it after all: it does not take the name.
func TestProbeEndsWhenTheActiveOneAnswers(t *testing.T) {
	t.Parallel()
	s, other := newSite(t, 1), neighbour(t)
	s.update(s.now, s.links)
	l := s.responder.links[eth]
	s.pass(300 * time.Millisecond)
	must.Equal(t, "phase", probing, l.specified.phase)
	l.pair.due = s.now
	s.advance(s.now)
	s.answers(other, s.asked(), RoleActive)
	must.Equal(t, "it waits, under its own name", true, l.specified.phase == waiting && l.own != nil)
	s.pass(time.Second)
	must.Hold(t, !l.specified.held(), "it takes the name of an active gateway that answers")
}

// TestProofIsForOneQuestion sends an answer again, with another's word for it.
func TestProofIsForOneQuestion(t *testing.T) {
	t.Parallel()
	s, other := started(t), neighbour(t)
	s.config.SiteToken, other.config.SiteToken = "of the site", "of the site"
	const id = "0000000000000000"
	answer := func(nonce, proof string) { s.answer("192.168.1.30:5353", nonce, id, RoleActive, proof) }
	first, second := s.nextNonce(), s.nextNonce()
	of := func(nonce string) string { return other.proof(nonce, id, RoleActive) }
	answer(second, of(first))
	answer(first, of(first))
	answer(second, other.proof(second, id, RoleStandby))
	answer(strings.Repeat("0", 32), of(strings.Repeat("0", 32)))
	must.Equal(t, "after answers that prove nothing it is", "active specified ready", s.is(eth))
	must.Equal(t, "and knows of", 0, len(s.on(eth).Peers))
	answer(second, of(second))
	must.Equal(t, "after one that does it is", RoleStandby, s.on(eth).Role)
	must.Equal(t, "and knows of", []string{"192.168.1.30"}, s.on(eth).Peers)
}

// TestPairQuestionsAreBounded asks as a flood does.
func TestPairQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	s := started(t)
	for i := range 1000 {
		s.from(eth, stranger, ask(fmt.Sprintf("%032x", i)+pairSuffix, dns.TypeTXT, dns.ClassINET))
		s.pass(time.Millisecond)
	}
	most := 0
	sent := s.takeAll()
	for _, l := range sent {
		most = max(most, len(l.m.Answer))
	}
	must.Hold(t, len(sent) <= 15 && most == maxPeers, "%d messages in a second, of up to %d answers", len(sent), most)
	known := gateways{}
	for i := range maxPeers + 1 {
		_, ok := known.hear(s.now, strconv.Itoa(i), netip.MustParseAddr("192.168.1.66"), true)
		must.Hold(t, ok == (i < maxPeers), "gateway %d is heard: %v", i, ok)
	}
	_, ok := known.hear(s.now, "0", netip.MustParseAddr("fe80::66"), true)
	must.Hold(t, ok, "one of many that are known is not heard again")
	n := len(s.responder.links[eth].said)
	must.Hold(t, n <= 20, "%d records are remembered", n)
}

// TestNeighboursWithIPv6 asks by IPv6 for what a link has.
func TestNeighboursWithIPv6(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.links = []Link{
		{Index: eth, Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.1.20/24"), netip.MustParsePrefix("fd00:1::20/64")}},
		{Index: wlan, Name: "wlan0", Prefixes: []netip.Prefix{netip.MustParsePrefix("fe80::20/64")}},
	}
	s.start()
	for asker, want := range map[string]string{"fd00:1::7": "fd00:1::20", "fe80::7": "fd00:1::20"} {
		from := netip.AddrPortFrom(netip.MustParseAddr(asker).WithZone("eth0"), 49152)
		s.from(eth, from.String(), ask(specified, dns.TypeAAAA, dns.ClassINET))
		sent := s.only()
		must.Hold(t, sent.to == from, "sent %v to %s", sent, asker)
		same(t, "answer", sent.m.Answer, specified+" 10 IN AAAA "+want)
		same(t, "additional", sent.m.Extra, specified+" 10 IN A 192.168.1.20", specified+" 10 IN NSEC monitor-gateway.local. A AAAA")
	}
	s.from(wlan, netip.AddrPortFrom(netip.MustParseAddr("fe80::7"), multicast.Port).String(), ask(specified, dns.TypeA, dns.ClassINET))
	same(t, "no IPv4 address", s.only().m.Answer, specified+" 120 IN NSEC monitor-gateway.local. AAAA flush")
}

// TestPeerIsKnownByBothAddresses hears the active gateway by IPv4 and IPv6: neither
// is another device that claims the name.
func TestPeerIsKnownByBothAddresses(t *testing.T) {
	t.Parallel()
	s, other := started(t), neighbour(t)
	nonce, id := s.nextNonce(), "ffffffffffffffff"
	for _, from := range []string{"[fe80::30]:5353", "192.168.1.30:5353"} {
		s.answer(from, nonce, id, RoleActive, other.proof(nonce, id, RoleActive))
	}
	must.Equal(t, "it knows of", []string{"192.168.1.30"}, s.on(eth).Peers)
	for _, from := range []string{"[fe80::30]:5353", "192.168.1.30:5353", stranger} {
		s.from(eth, from, response(claim()))
		s.pass(rivalAfter)
		got := s.on(eth).Problem
		must.Hold(t, (got == "") != (from == stranger), "after a claim from %s the problem is %q", from, got)
	}
}
