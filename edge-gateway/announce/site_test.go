package announce

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/shared/must"
)

// letter is a message that a responder sent.
type letter struct {
	link int
	to   netip.AddrPort // invalid for everybody
	m    *dns.Msg
}

// site is a responder with a clock and a network of the test's.
type site struct {
	*responder

	t     *testing.T
	now   time.Time
	sent  []letter
	links []Link
	mute  bool // nothing can be sent
}

const (
	eth  = 2
	wlan = 3
)

// newSite returns a gateway with two links, not yet started.
func newSite(t *testing.T, seed uint64) *site {
	t.Helper()
	s := &site{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s.responder = newResponder(Config{Port: 8080}, seed,
		func(link int, to netip.AddrPort, message []byte) bool {
			m := new(dns.Msg)
			must.Do(t, m.Unpack(message))
			if !s.mute {
				s.sent = append(s.sent, letter{link, to, m})
			}
			return !s.mute
		})
	s.links = []Link{
		{Index: eth, Name: "eth0", Hardware: net.HardwareAddr{0xb8, 0x27, 0xeb, 1, 2, 3}, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.1.20/24")}},
		{Index: wlan, Name: "wlan0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.20/16")}},
	}
	return s
}

// started is a site that has claimed its names on both links.
func started(t *testing.T) *site {
	t.Helper()
	return newSite(t, 1).start()
}

// start gives the gateway ten seconds to claim its names.
func (s *site) start() *site {
	s.update(s.now, s.links)
	s.pass(10 * time.Second)
	s.sent = nil
	return s
}

// pass lets time go by, and does what is due at the moment it is due.
func (s *site) pass(d time.Duration) {
	end := s.now.Add(d)
	for {
		next := s.next(end.Add(1))
		if next.After(end) {
			s.now = end
			return
		}
		if next.After(s.now) {
			s.now = next
		}
		s.advance(s.now)
	}
}

// take returns what was sent since the last call, without questions for other
// gateways: pair_test.go looks at these.
func (s *site) take() []letter {
	return slices.DeleteFunc(s.takeAll(), func(l letter) bool {
		return len(l.m.Question) == 1 && strings.HasSuffix(l.m.Question[0].Name, pairSuffix)
	})
}

// sends returns what was sent since the last call, so many messages.
func (s *site) sends(n int) []letter {
	s.t.Helper()
	sent := s.take()
	if len(sent) != n {
		s.t.Fatalf("sent %v, want %d messages", sent, n)
	}
	return sent
}

// only returns the one message that was sent since the last call.
func (s *site) only() letter {
	s.t.Helper()
	return s.sends(1)[0]
}

func (s *site) takeAll() []letter {
	sent := s.sent
	s.sent = nil
	return sent
}

// on is what the gateway does on a link.
func (s *site) on(index int) LinkState {
	s.t.Helper()
	for _, l := range s.state(s.now).Links {
		if l.Interface == s.responder.links[index].Name {
			return l
		}
	}
	s.t.Fatalf("no link %d", index)
	return LinkState{}
}

func (s *site) from(link int, from string, m *dns.Msg) {
	s.t.Helper()
	wire := must.Get(m.Pack())(s.t)
	s.receive(s.now, packet{data: wire, link: link, from: netip.MustParseAddrPort(from), to: netip.MustParseAddr("224.0.0.251")})
	s.advance(s.now)
}

func ask(name string, kind uint16, class uint16) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Id: 4711}, Question: []dns.Question{{Name: name, Qtype: kind, Qclass: class}}}
}

// texts are records as lines, sorted, with the flush bit as a word.
func texts(records []dns.RR) []string {
	var lines []string
	for _, record := range records {
		record = dns.Copy(record)
		flush := ""
		if record.Header().Class&cacheFlush != 0 {
			record.Header().Class &= classMask
			flush = " flush"
		}
		lines = append(lines, strings.Join(strings.Fields(record.String()), " ")+flush)
	}
	slices.Sort(lines)
	return lines
}

func same(t *testing.T, what string, got []dns.RR, want ...string) {
	t.Helper()
	slices.Sort(want)
	if lines := texts(got); !slices.Equal(lines, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// goodbye is a record's line with no life left.
func goodbye(line string) string {
	fields := strings.Fields(line)
	fields[1] = "0"
	return strings.Join(fields, " ")
}

const (
	pointer      = "_http._tcp.local. 4500 IN PTR monitor-gateway._http._tcp.local."
	services     = "_services._dns-sd._udp.local. 4500 IN PTR _http._tcp.local."
	service      = "monitor-gateway._http._tcp.local. 120 IN SRV 0 0 8080 monitor-gateway.local. flush"
	text         = `monitor-gateway._http._tcp.local. 4500 IN TXT "version=1.0" flush`
	wired        = "monitor-gateway.local. 120 IN A 192.168.1.20 flush"
	wireless     = "monitor-gateway.local. 120 IN A 10.0.0.20 flush"
	hostNSEC     = "monitor-gateway.local. 120 IN NSEC monitor-gateway.local. A flush"
	instanceNSEC = "monitor-gateway._http._tcp.local. 4500 IN NSEC monitor-gateway._http._tcp.local. TXT SRV flush"
)
