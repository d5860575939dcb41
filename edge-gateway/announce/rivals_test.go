package announce

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// crowd is a link with gateways that have IPv4 and IPv6: each packet arrives twice, by
// IPv6 first.
type crowd struct {
	sites []*site
	lost  func(letter) bool
}

// join adds a gateway of an enrolment with address 192.168.1.HOST. All have one seed, so
// that they do everything at the same moment.
func (c *crowd) join(t *testing.T, host byte, key string) *site {
	t.Helper()
	s := newSite(t, 1)
	s.id = fmt.Sprintf("%016x", host)
	s.config.Enrolment = &ofCustomer{key: key}
	s.links = []Link{{Index: eth, Name: "eth0", Hardware: net.HardwareAddr{0, 0, 0, 0, 0, host}, Prefixes: []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 1, host}), 24), netip.MustParsePrefix(fmt.Sprintf("fe80::%d/64", host)),
	}}}
	if len(c.sites) > 0 {
		s.now = c.sites[0].now
	}
	c.sites = append(c.sites, s)
	s.update(s.now, s.links)
	return s
}

// pass lets the gateways hear each other for so long, and calls look now and then.
func (c *crowd) pass(d time.Duration, look func()) {
	for end := c.sites[0].now.Add(d); c.sites[0].now.Before(end); look() {
		exchange(c.sites, c.lost)
		for _, s := range c.sites {
			s.pass(20 * time.Millisecond)
		}
	}
}

// TestHolderIsOneDevice (contract 8.15) has a pair and two gateways of other customers on a
// link. All that wait for the name ask in the same moment. The standby knows its active one, and
// the others say who has the name, in words that do not change while answers are late.
func TestHolderIsOneDevice(t *testing.T) {
	t.Parallel()
	c := &crowd{}
	active := c.join(t, 20, "of a pair")
	c.pass(10*time.Second, func() {})
	standby, second, third := c.join(t, 50, "of a pair"), c.join(t, 30, "of another"), c.join(t, 40, "of a third")
	c.pass(5*time.Second, func() {})
	must.Equal(t, "after five seconds the standby", RoleStandby, standby.on(eth).Role)
	holds := func() {
		if got := active.on(eth).Role; got != RoleActive {
			t.Fatalf("the active one is %q", got)
		}
		if got := standby.on(eth); got.Role != RoleStandby || got.Problem != "" {
			t.Fatalf("the standby is %+v", got)
		}
		for _, other := range []*site{second, third} {
			if got := other.on(eth); got.Role != RoleConflict || got.Problem != "a gateway of another enrolment, 192.168.1.20, has monitor-gateway.local" {
				t.Fatalf("another gateway is %+v", got)
			}
		}
	}
	c.pass(2*time.Minute, holds)
	// The answers of gateways get lost, those to probes arrive.
	c.lost = func(l letter) bool {
		return l.m.Response && len(l.m.Answer) > 0 && nonceOf(l.m.Answer[0].Header().Name) != ""
	}
	c.pass(40*time.Second, holds)
}
