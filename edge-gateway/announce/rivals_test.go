package announce

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

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
				got, want := s.on(eth), LinkState{Role: RoleConflict, Problem: "a gateway of another enrolment, 192.168.1.20, has monitor-gateway.local"}
				switch s.id {
				case fmt.Sprintf("%016x", 20):
					want = LinkState{Role: RoleActive}
				case fmt.Sprintf("%016x", 50):
					want = LinkState{Role: RoleStandby}
				}
				if got.Role != want.Role || got.Problem != want.Problem {
					t.Fatalf("%s is %+v", s.id, got)
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
			must.Equal(t, fmt.Sprintf("goodbye %v, %s later: alone the other", politely, after), "active specified ready", all[1].is(eth))
		}
	}
}

// TestStandbyHearsWhoHasTheName (contract 8.15) has a device take the name that the active one of the pair
// has left.
func TestStandbyHearsWhoHasTheName(t *testing.T) {
	t.Parallel()
	all := pairOf(t)
	live(10*time.Second, nil, all...)
	standby := all[1]
	for end := standby.now.Add(5 * time.Second); standby.now.Before(end); live(50*time.Millisecond, nil, standby) {
		standby.from(eth, stranger, response(claim()))
	}
	if got := standby.on(eth); got.Role != RoleConflict || got.Problem != "another device, 192.168.1.66, has monitor-gateway.local" {
		t.Errorf("it is %+v", got)
	}
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
