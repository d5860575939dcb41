package announce

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
)

// together puts sites on one link and lets each hear the others, and itself as
// multicast loopback does, for so long.
func together(d time.Duration, sites ...*site) {
	end := sites[0].now.Add(d)
	for sites[0].now.Before(end) {
		for i, s := range sites {
			for _, l := range s.take() {
				if l.link != eth {
					continue
				}
				for _, other := range sites {
					other.from(eth, netip.AddrPortFrom(sites[i].links[0].Prefixes[0].Addr(), multicast.Port).String(), l.m)
				}
			}
		}
		for _, s := range sites {
			s.pass(5 * time.Millisecond)
		}
	}
}

func TestTwoGateways(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]time.Duration{"at once": 0, "a moment later": 300 * time.Millisecond, "an hour later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newSite(t, 1), newSite(t, 2)
			second.links = []Link{{Index: eth, Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.1.30/24")}}}
			first.update(first.now, first.links)
			first.pass(head)
			if head > time.Minute {
				first.take()
			}
			second.now = first.now
			second.update(second.now, second.links)
			together(20*time.Second, first, second)
			names := []string{first.host(), second.host()}
			slices.Sort(names)
			if !slices.Equal(names, []string{"monitor-gateway-2.local.", "monitor-gateway.local."}) {
				t.Errorf("they are called %v", names)
			}
			for _, s := range []*site{first, second} {
				if l := s.responder.links[eth]; l.phase != ready {
					t.Errorf("%s is still %v", s.host(), l.phase)
				}
			}
			if head > time.Minute && first.number != 1 {
				t.Error("the one that was there gave its name up")
			}
		})
	}
}

func TestItHearsItself(t *testing.T) {
	t.Parallel()
	// Both interfaces in one network, as a gateway with a cable and WiFi may be.
	s := newSite(t, 1)
	s.links[1].Prefixes = []netip.Prefix{netip.MustParsePrefix("192.168.1.21/24")}
	s.update(s.now, s.links)
	for range 4000 {
		for _, l := range s.take() {
			from := netip.AddrPortFrom(s.links[l.link-eth].Prefixes[0].Addr(), multicast.Port).String()
			s.from(eth, from, l.m)
			s.from(wlan, from, l.m)
		}
		s.pass(5 * time.Millisecond)
	}
	if s.number != 1 || s.responder.links[eth].phase != ready || s.responder.links[wlan].phase != ready {
		t.Errorf("called %s, %v and %v", s.host(), s.responder.links[eth].phase, s.responder.links[wlan].phase)
	}
}

func TestNameIsDefendedThenGivenUp(t *testing.T) {
	t.Parallel()
	s := started(t)
	probe := ask("monitor-gateway.local.", dns.TypeANY, dns.ClassINET|cacheFlush)
	claim := &dns.A{Hdr: dns.RR_Header{Name: "monitor-gateway.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: []byte{192, 168, 1, 66}}
	probe.Ns = []dns.RR{claim}
	s.from(eth, "192.168.1.66:5353", probe)
	if sent := s.take(); len(sent) == 0 || len(sent[0].m.Answer) == 0 {
		t.Fatalf("sent %v, want a defence at once", sent)
	}
	// It will not hear: both have announced the name. Ask again, and give way.
	announcement := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{claim}}
	s.from(eth, "192.168.1.66:5353", announcement)
	if s.responder.links[eth].phase != probing || s.number != 1 {
		t.Fatalf("%v as %s, want to probe for the old name", s.responder.links[eth].phase, s.host())
	}
	s.pass(500 * time.Millisecond)
	s.from(eth, "192.168.1.66:5353", announcement)
	s.pass(10 * time.Second)
	if s.host() != "monitor-gateway-2.local." {
		t.Errorf("still called %s", s.host())
	}
}

func TestConflictStormIsSlow(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.update(s.now, s.links[:1])
	began := s.now
	for s.number < 40 && s.now.Sub(began) < 5*time.Minute {
		s.pass(10 * time.Millisecond)
		s.take()
		host := s.host()
		s.from(eth, "192.168.1.66:5353", &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{
			&dns.A{Hdr: dns.RR_Header{Name: host, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: []byte{192, 168, 1, 66}},
		}})
		if len(s.conflicts) >= manyConflicts && !s.responder.links[eth].due.After(s.now.Add(conflictWaits-time.Second)) {
			t.Fatalf("after %d conflicts it probes again in %v", len(s.conflicts), s.responder.links[eth].due.Sub(s.now))
		}
	}
}
