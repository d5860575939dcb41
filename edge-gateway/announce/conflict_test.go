package announce

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// exchange delivers what sites have sent on the wired link and is not lost, once from each
// address of the sender, by IPv6 first.
func exchange(sites []*site, lost func(letter) bool) {
	sent := make([][]letter, len(sites))
	for i, s := range sites {
		sent[i] = slices.DeleteFunc(s.takeAll(), func(l letter) bool { return l.link != eth || lost != nil && lost(l) })
	}
	for i, s := range sites {
		for _, l := range sent[i] {
			for _, prefix := range slices.Backward(s.links[0].Prefixes) {
				for _, other := range sites {
					other.from(eth, netip.AddrPortFrom(prefix.Addr(), multicast.Port).String(), l.m)
				}
			}
		}
	}
}

// neighbour is a second gateway, on the wired link alone.
func neighbour(t *testing.T) *site {
	t.Helper()
	s := newSite(t, 2)
	s.links = []Link{{
		Index: eth, Name: "eth0", Hardware: net.HardwareAddr{0xb8, 0x27, 0xeb, 4, 5, 6},
		Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.1.30/24")},
	}}
	return s
}

// claim is a record by which another device, at .66, claims the specified name.
func claim() *dns.A {
	return &dns.A{Hdr: dns.RR_Header{Name: specified, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: []byte{192, 168, 1, 66}}
}

// gone is the end of that.
func gone() *dns.A {
	record := claim()
	record.Hdr.Ttl = 0
	return record
}

// winning is a probe for the specified name that wins each tie.
func winning() *dns.Msg {
	probe, late := ask(specified, dns.TypeANY, dns.ClassINET), claim()
	late.A = net.IPv4(250, 250, 250, 250)
	probe.Ns = []dns.RR{late}
	return probe
}

func response(records ...dns.RR) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: records}
}

const (
	stranger  = "192.168.1.66:5353"
	specified = "monitor-gateway.local."
)

func TestItHearsItself(t *testing.T) {
	t.Parallel()
	// Both interfaces in one network, as a gateway with a cable and WiFi may be.
	s := newSite(t, 1)
	s.links[1].Prefixes = []netip.Prefix{netip.MustParsePrefix("192.168.1.21/24")}
	s.update(s.now, s.links)
	for range 12000 {
		for _, l := range s.takeAll() {
			from := netip.AddrPortFrom(s.links[l.link-eth].Prefixes[0].Addr(), multicast.Port).String()
			s.from(eth, from, l.m)
			s.from(wlan, from, l.m)
		}
		s.pass(5 * time.Millisecond)
	}
	for _, index := range []int{eth, wlan} {
		must.Equal(t, "alone, it is", "active specified ready", s.is(index))
		must.Equal(t, "and knows of", 0, len(s.on(index).Peers))
	}
}

// TestSpoofedNameIsKept (contract 8.14) sends what took the name for ever once: other devices' claims of it, one packet
// or a minute of them. RFC 6762 §9 would have the responder probe at each of them, "and the loser MUST cease using the
// name"; §6 that "a responder MUST NOT multicast a record on a given interface until at least one second has elapsed
// since the last time that record was multicast".
func TestSpoofedNameIsKept(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		packets int
		every   time.Duration
		most    int // announcements against them
	}{
		"once":                             {1, 0, 1},
		"six packets":                      {6, 100 * time.Millisecond, 2},
		"a minute of ten packets a second": {600, 100 * time.Millisecond, 11},
		"a hundred packets at once":        {100, 0, 2},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := started(t)
			sent := 0
			spoof := response(claim())
			for range c.packets {
				s.from(eth, stranger, spoof)
				s.pass(c.every)
				sent += len(s.take())
			}
			s.pass(rivalAfter)
			after := len(s.take())
			must.Equal(t, "spoofed, it is", "conflict specified ready", s.is(eth))
			must.Equal(t, "the problem", "another device, 192.168.1.66, also claims monitor-gateway.local", s.state(s.now).Problem)
			// Whoever asks meanwhile is answered.
			s.from(eth, "192.168.1.7:49152", ask(specified, dns.TypeA, dns.ClassINET))
			s.only()
			s.pass(20 * time.Second)
			after += len(s.take())
			must.Hold(t, c.packets <= 1 || after != 0, "the last packet has the last word")
			sent += after
			must.Hold(t, sent != 0 && sent <= c.most,
				"%d announcements against %d packets, want 1 to %d", sent, c.packets, c.most)
			s.pass(rememberFor)
			must.Equal(t, "later it is", "active ", string(s.state(s.now).Role)+" "+s.state(s.now).Problem)
		})
	}
}

// TestTwoWhoDefendMakeNoStorm lets two hear each other's defence as a claim.
func TestTwoWhoDefendMakeNoStorm(t *testing.T) {
	t.Parallel()
	first, second := started(t), neighbour(t)
	second.config.SiteToken = "another"
	second.start()
	second.now, first.now = first.now.Add(time.Minute), first.now.Add(time.Minute)
	first.defend(first.now, first.responder.links[eth])
	sent := 0
	for range 60 * 200 {
		for _, pair := range [][2]*site{{first, second}, {second, first}} {
			for _, l := range pair[0].take() {
				if l.link == eth && l.m.Response && len(l.m.Answer) > 1 {
					sent++
				}
				pair[1].from(eth, netip.AddrPortFrom(pair[0].links[0].Prefixes[0].Addr(), multicast.Port).String(), l.m)
			}
			pair[0].pass(5 * time.Millisecond)
		}
	}
	must.Hold(t, sent <= 30, "%d announcements in a minute", sent)
	must.Equal(t, "they are", []string{"conflict specified ready", "conflict specified ready"}, roles(first, second))
}

// TestOneThatOnlyProbes has a device that probes for the name again and again with records that win (§8.2), and never
// takes it: the gateway waits for five seconds, then has a name of its own and says who it is.
func TestOneThatOnlyProbes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.update(s.now, s.links)
	theirs := winning()
	probed := func(d time.Duration) {
		for end := s.now.Add(d); s.now.Before(end); s.pass(200 * time.Millisecond) {
			s.from(eth, "192.168.1.66:5353", theirs)
		}
	}
	l := s.responder.links[eth]
	probed(reclaimEvery)
	must.Hold(t, l.own == nil && !l.specified.held(),
		"within %s: own name %v, %s", reclaimEvery, l.own != nil, l.specified.phase)
	probed(3 * time.Second)
	got := s.is(eth)
	must.Hold(t, got == "conflict own ready" || got == "conflict own announcing", "afterwards it is %s", got)
	s.pass(10 * time.Second)
	must.Equal(t, "once the other is silent it is", "active specified ready", s.is(eth))
}

// TestNameIsTakenBack (contract 8.14) starts where another device has the name: the gateway is found under its own
// name, says so, and has the specified one back as soon as it is free.
func TestNameIsTakenBack(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		leave  func(s *site)
		within time.Duration
	}{
		"silently":       {func(*site) {}, reclaimEvery + 3*time.Second},
		"with a goodbye": {func(s *site) { s.from(eth, stranger, response(gone())) }, 2 * time.Second},
		"with the network": {func(s *site) {
			s.links[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("192.168.9.20/24")}
			s.update(s.now, s.links)
		}, 2 * time.Second},
		"and the cable": {func(s *site) { s.update(s.now, s.links[1:]); s.update(s.now, s.links) }, 2 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			s.update(s.now, s.links)
			held := func(d time.Duration) {
				for end := s.now.Add(d); s.now.Before(end); s.pass(10 * time.Millisecond) {
					for _, l := range s.take() {
						asks := slices.ContainsFunc(l.m.Question, func(q dns.Question) bool { return q.Name == specified })
						if l.link == eth && asks {
							s.from(eth, stranger, response(claim()))
						}
					}
				}
			}
			held(40 * time.Second)
			must.Equal(t, "while another has its name it is", "conflict own ready", s.is(eth))
			must.Equal(t, "name on the other link", "monitor-gateway.local", s.on(wlan).Host)
			must.Equal(t, "the problem", "another device, 192.168.1.66, has monitor-gateway.local", s.state(s.now).Problem)
			s.from(eth, "192.168.1.7:49152", ask("monitor-gateway-010203.local.", dns.TypeA, dns.ClassINET))
			s.only()
			c.leave(s)
			s.pass(c.within)
			if got := s.on(eth); got.Host != "monitor-gateway.local" || !slices.Contains([]string{"announcing", "ready"}, got.Phase) {
				t.Errorf("%v after the name is free: %+v", c.within, got)
			}
			goodbyes := 0
			for _, l := range s.take() {
				goodbyes += strings.Count(strings.Join(texts(l.m.Answer), "\n"), "monitor-gateway-010203.local. 0 IN A")
			}
			if title != "with the network" && title != "and the cable" {
				must.Equal(t, "its own name is taken back, times", 1, goodbyes)
			}
		})
	}
}

// TestProbingIsSlowUnderConflicts has a device that answers every probe, and says
// goodbye after each. RFC 6762 §8.1 has a host slow down when fifteen conflicts occur
// within any ten-second period: with a second between attempts there are ten.
func TestProbingIsSlowUnderConflicts(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.update(s.now, s.links[:1])
	var attempts []time.Time
	for began := s.now; s.now.Sub(began) < 2*time.Minute; s.pass(10 * time.Millisecond) {
		for _, l := range s.take() {
			if !l.m.Response && len(l.m.Question) == 2 && l.m.Question[1].Name == specified {
				attempts = append(attempts, s.now)
				s.from(eth, stranger, response(claim()))
				s.from(eth, stranger, response(gone()))
			}
		}
	}
	for i := range attempts[1:] {
		if apart := attempts[i+1].Sub(attempts[i]); apart < reclaimPause {
			t.Fatalf("attempt %d came %v after the one before", i+1, apart)
		}
	}
	must.Hold(t, len(attempts) >= 60, "%d attempts in two minutes", len(attempts))
}

// TestRivalIsReportedByIPv4 hears one device by both, with and without its IPv4 address.
func TestRivalIsReportedByIPv4(t *testing.T) {
	t.Parallel()
	s := started(t)
	const wide = "[fe80::66]:5353"
	without := &dns.AAAA{Hdr: dns.RR_Header{Name: specified, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 120}, AAAA: net.ParseIP("fe80::66")}
	told := func(want string) {
		t.Helper()
		must.Equal(t, "the problem", "another device, "+want+", also claims monitor-gateway.local", s.on(eth).Problem)
	}
	s.from(eth, wide, response(without))
	s.pass(rivalAfter)
	told("fe80::66")
	for _, from := range []string{wide, stranger, wide} {
		s.from(eth, from, response(claim()))
		told("192.168.1.66")
	}
	s.pass(rememberFor / 2)
	s.from(eth, wide, response(without)) // another one, or the same
	told("192.168.1.66")
	s.pass(rememberFor / 2)
	s.from(eth, wide, response(without)) // another one
	told("fe80::66")
}

// TestRivalBounds goes to the last moment at which a claim counts, and the first at which it does not.
func TestRivalBounds(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first, second := netip.MustParseAddr("192.168.1.66"), netip.MustParseAddr("192.168.1.67")
	for after, want := range map[time.Duration]bool{0: false, rivalAfter - 1: false, rivalAfter: true, rememberFor - 1: true, rememberFor: false} {
		var v rival
		v.claims(began, first)
		must.Equal(t, fmt.Sprintf("current after %s", after), want, v.isCurrent(began.Add(after)))
	}
	for after, want := range map[time.Duration]rival{
		rememberFor - 1: {since: began, at: began.Add(rememberFor - 1), address: first, claimed: began},
		rememberFor:     {since: began.Add(rememberFor), at: began.Add(rememberFor), address: second, claimed: began.Add(rememberFor)},
	} {
		var v rival
		v.claims(began, first)
		if v.claims(began.Add(after), second); v != want {
			t.Errorf("another claims after %s: %+v, want %+v", after, v, want)
		}
	}
	n := &name{label: "monitor-gateway"}
	must.Equal(t, "who says goodbye", second.String(), n.claimant([]dns.RR{gone()}, second).String())
	must.Equal(t, "who claims", first.String(), n.claimant([]dns.RR{gone(), claim()}, second).String())
}

// TestWhenANameIsGivenUp has another prober win: after five seconds of it the gateway takes its own name,
// and tries for the specified one five seconds later or more.
func TestWhenANameIsGivenUp(t *testing.T) {
	t.Parallel()
	for tried, given := range map[time.Duration]bool{reclaimEvery: false, reclaimEvery + 1: true} {
		s := newSite(t, 1)
		s.update(s.now, s.links)
		l := s.responder.links[eth]
		n := l.specified
		n.tried = s.now.Add(-tried)
		s.tieBreak(s.now, l, n, winning(), netip.MustParseAddr("192.168.1.66"))
		again := n.due.Sub(s.now)
		if (l.own != nil) != given || !given && again != tieBreakDelay || given && (again < reclaimEvery || again >= reclaimEvery+time.Second) {
			t.Errorf("%s after it was tried: given up %v, tried again after %s", tried, l.own != nil, again)
		}
	}
}

// join makes a gateway of an enrolment with address 192.168.1.HOST, by IPv4 and IPv6, beside others
// of the link. All have one seed, so that they do everything at the same moment.
func join(t *testing.T, others []*site, host byte, key string) []*site {
	t.Helper()
	s := newSite(t, 1)
	s.id = fmt.Sprintf("%016x", host)
	s.config.Enrolment = &ofCustomer{key: key}
	s.links = []Link{{Index: eth, Name: "eth0", Hardware: net.HardwareAddr{0, 0, 0, 0, 0, host}, Prefixes: []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 1, host}), 24), netip.MustParsePrefix(fmt.Sprintf("fe80::%d/64", host)),
	}}}
	if len(others) > 0 {
		s.now = others[0].now
	}
	s.update(s.now, s.links)
	return append(others, s)
}

// TestHolderIsOneDevice (contract 8.15) has a pair and two gateways of other customers on a
// link. All that wait for the name ask in the same moment. The standby knows its active one, and
// the others say who has the name, in words that do not change while answers are late.
func TestHolderIsOneDevice(t *testing.T) {
	t.Parallel()
	all := join(t, nil, 20, "of a pair")
	live(10*time.Second, nil, all...)
	all = join(t, all, 50, "of a pair")
	all = join(t, all, 30, "of another")
	all = join(t, all, 40, "of a third")
	live(5*time.Second, nil, all...)
	holds := func(d time.Duration, lost func(letter) bool) {
		for end := all[0].now.Add(d); all[0].now.Before(end); live(20*time.Millisecond, lost, all...) {
			for _, s := range all {
				want := "conflict: a gateway of another enrolment, 192.168.1.20, has monitor-gateway.local"
				switch s.id {
				case fmt.Sprintf("%016x", 20):
					want = "active: "
				case fmt.Sprintf("%016x", 50):
					want = "standby: "
				}
				if got := string(s.on(eth).Role) + ": " + s.on(eth).Problem; got != want {
					t.Fatalf("%s is %s, want %s", s.id, got, want)
				}
			}
		}
	}
	holds(2*time.Minute, nil)
	// The answers of gateways get lost, those to probes arrive.
	holds(40*time.Second, func(l letter) bool {
		return l.m.Response && len(l.m.Answer) > 0 && nonceOf(l.m.Answer[0].Header().Name) != ""
	})
}

// pairOf makes an active gateway and another that has just joined it.
func pairOf(t *testing.T) []*site {
	t.Helper()
	all := join(t, nil, 20, "of a pair")
	live(10*time.Second, nil, all...)
	return join(t, all, 30, "of a pair")
}

// TestStandbyComesBeforeAnotherEnrolment (contract 8.15) has the active one of a pair end, with a goodbye
// and without, while a gateway of another customer waits for the name at whatever point of its attempts.
func TestStandbyComesBeforeAnotherEnrolment(t *testing.T) {
	t.Parallel()
	for _, politely := range []bool{false, true} {
		for after := time.Duration(0); after < 7*time.Second; after += 50 * time.Millisecond {
			all := pairOf(t)
			all = join(t, all, 40, "of another") // its records sort later: it wins every tie
			live(40*time.Second+after, nil, all...)
			if politely {
				all[0].goodbye()
				exchange(all, nil)
			}
			all = all[1:]
			live(5*time.Second, nil, all...)
			standby, other := all[0].on(eth), all[1].on(eth)
			if standby.Role != RoleActive || other.Role != RoleConflict {
				t.Fatalf("goodbye %v, %s later: the standby is %+v, the other %+v", politely, after, standby, other)
			}
			live(2*time.Minute, nil, all[1])
			what := fmt.Sprintf("goodbye %v, %s later: alone the other", politely, after)
			must.Equal(t, what, "active specified ready", all[1].is(eth))
		}
	}
}

// TestStandbyHearsWhoHasTheName (contract 8.15) has a device take the name that the active one of the pair has left.
func TestStandbyHearsWhoHasTheName(t *testing.T) {
	t.Parallel()
	all := pairOf(t)
	live(10*time.Second, nil, all...)
	standby := all[1]
	for end := standby.now.Add(5 * time.Second); standby.now.Before(end); live(50*time.Millisecond, nil, standby) {
		standby.from(eth, stranger, response(claim()))
	}
	must.Equal(t, "it is", RoleConflict, standby.on(eth).Role)
	must.Equal(t, "the problem", "another device, 192.168.1.66, has monitor-gateway.local", standby.on(eth).Problem)
}

// TestActiveOneLosesItsIPv4Address (contract 8.15) has the active one's lease end, and then the other's.
func TestActiveOneLosesItsIPv4Address(t *testing.T) {
	t.Parallel()
	all := pairOf(t)
	live(10*time.Second, nil, all...)
	loses := func(s *site) {
		s.links[0].Prefixes = s.links[0].Prefixes[1:]
		s.update(s.now, s.links)
	}
	loses(all[0])
	live(15*time.Second, nil, all...)
	must.Equal(t, "who has lost its address is", RoleStandby, all[0].on(eth).Role)
	must.Equal(t, "who has one is", RoleActive, all[1].on(eth).Role)
	live(time.Minute, nil, all...)
	loses(all[1])
	for end := all[0].now.Add(time.Minute); all[0].now.Before(end); live(time.Second, nil, all...) {
		must.Equal(t, "without an address in the network it is", RoleActive, all[1].on(eth).Role)
	}
}

// live lets time go by for sites on one link, from one moment at which something is due to the next.
func live(d time.Duration, lost func(letter) bool, sites ...*site) {
	for at, end := sites[0].now, sites[0].now.Add(d); at.Before(end); {
		exchange(sites, lost)
		at = end
		for _, s := range sites {
			at = s.next(at)
		}
		for _, s := range sites {
			s.pass(at.Sub(s.now))
		}
	}
}

// TestPairThroughFaults lets a pair live through thousands of faults: a parted link, lost messages, one
// that is killed, one that cannot send. Whoever is alone has the specified name within 5 seconds, and
// 30 seconds after the fault one has it and the other stands by.
func TestPairThroughFaults(t *testing.T) {
	t.Parallel()
	const runs = 4
	faults := 4000 / runs
	if n, err := strconv.Atoi(os.Getenv("PAIR_FAULTS")); err == nil { // at night
		faults = n / runs
	} else if tooltest.RaceDetector() {
		faults /= 10
	}
	for seed := range uint64(runs) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(seed, 8))
			first, second := pairUp(t)
			began := first.now
			for n := range faults {
				one, other := first, second
				if chance.IntN(2) == 0 {
					one, other = second, first
				}
				lasts := time.Duration(chance.Int64N(int64(time.Minute)))
				fault := []string{"parted", "lossy", "killed", "mute"}[chance.IntN(4)]
				alone := []*site{other}
				switch fault {
				case "parted":
					live(lasts, nil, one)
					live(lasts, nil, other)
					alone = append(alone, one)
				case "lossy":
					share := chance.Float64() / 2
					live(lasts, func(letter) bool { return chance.Float64() < share }, one, other)
					alone = nil
				case "killed":
					live(lasts, nil, other)
					one.responder.links, one.id, one.now, one.sent = map[int]*link{}, fmt.Sprintf("%016x", chance.Uint64()), other.now, nil
					one.update(one.now, one.links)
				case "mute":
					one.mute = true
					live(lasts, nil, one, other)
					one.mute = false
				}
				for _, s := range alone {
					if host := s.on(eth).Host; lasts > 5*time.Second && host != "monitor-gateway.local" {
						t.Fatalf("fault %d, %s for %v: who is alone is %s", n, fault, lasts, host)
					}
				}
				live(30*time.Second, nil, one, other)
				if got := roles(first, second); !slices.Equal(got, isPair[:]) {
					t.Fatalf("fault %d, %s for %v: 30 s later they are %q", n, fault, lasts, got)
				}
			}
			t.Logf("%d faults in %.0f hours", faults, first.now.Sub(began).Hours())
		})
	}
}
