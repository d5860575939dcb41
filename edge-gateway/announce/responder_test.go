package announce

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/multicast"
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
}

const (
	eth  = 2
	wlan = 3
)

// newSite returns a gateway with two links, not yet started.
func newSite(t *testing.T, seed uint64) *site {
	t.Helper()
	s := &site{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s.responder = newResponder(Config{Name: "monitor-gateway", Port: 8080, Text: []string{"version=1.0"}}, seed,
		func(link int, to netip.AddrPort, message []byte) {
			m := new(dns.Msg)
			if err := m.Unpack(message); err != nil {
				t.Fatalf("own message: %v", err)
			}
			s.sent = append(s.sent, letter{link, to, m})
		})
	s.links = []Link{
		{Index: eth, Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.1.20/24")}},
		{Index: wlan, Name: "wlan0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.20/16")}},
	}
	return s
}

// started is a site that has claimed its names on both links.
func started(t *testing.T) *site {
	t.Helper()
	s := newSite(t, 1)
	s.update(s.now, s.links)
	s.pass(10 * time.Second)
	s.sent = nil
	return s
}

// pass lets time go by, and does what is due at the moment it is due.
func (s *site) pass(d time.Duration) {
	end := s.now.Add(d)
	for {
		next, ok := s.next()
		if !ok || next.After(end) {
			s.now = end
			return
		}
		if next.After(s.now) {
			s.now = next
		}
		s.advance(s.now)
	}
}

// take returns what was sent since the last call.
func (s *site) take() []letter {
	sent := s.sent
	s.sent = nil
	return sent
}

func (s *site) from(link int, from string, m *dns.Msg) {
	s.t.Helper()
	wire, err := m.Pack()
	if err != nil {
		s.t.Fatal(err)
	}
	s.receive(s.now, packet{data: wire, link: link, from: netip.MustParseAddrPort(from), to: netip.MustParseAddr("224.0.0.251")})
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

const (
	pointer  = "_http._tcp.local. 4500 IN PTR monitor-gateway._http._tcp.local."
	services = "_services._dns-sd._udp.local. 4500 IN PTR _http._tcp.local."
	service  = "monitor-gateway._http._tcp.local. 120 IN SRV 0 0 8080 monitor-gateway.local. flush"
	text     = `monitor-gateway._http._tcp.local. 4500 IN TXT "version=1.0" flush`
	wired    = "monitor-gateway.local. 120 IN A 192.168.1.20 flush"
	wireless = "monitor-gateway.local. 120 IN A 10.0.0.20 flush"
	noHost   = "monitor-gateway.local. 120 IN NSEC monitor-gateway.local. A flush"
	noMore   = "monitor-gateway._http._tcp.local. 4500 IN NSEC monitor-gateway._http._tcp.local. TXT SRV flush"
	reversed = "20.1.168.192.in-addr.arpa. 120 IN PTR monitor-gateway.local. flush"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.update(s.now, s.links)
	s.pass(10 * time.Second)
	var probed, announced []letter
	for _, l := range s.take() {
		if l.link != eth {
			continue
		}
		if l.m.Response {
			announced = append(announced, l)
		} else {
			probed = append(probed, l)
		}
	}
	if len(probed) != 3 || len(announced) != 2 {
		t.Fatalf("%d probes and %d announcements, want 3 and 2", len(probed), len(announced))
	}
	for _, q := range probed[0].m.Question {
		if q.Qtype != dns.TypeANY || q.Qclass != dns.ClassINET|cacheFlush {
			t.Errorf("probe asks %v", q)
		}
	}
	same(t, "probe", probed[0].m.Ns, strings.TrimSuffix(service, " flush"), strings.TrimSuffix(text, " flush"), strings.TrimSuffix(wired, " flush"))
	same(t, "announcement", announced[0].m.Answer, pointer, services, service, text, wired, reversed)
	if id := announced[0].m.Id; id != 0 {
		t.Errorf("announced with id %d", id)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name       string
		kind       uint16
		answer     []string
		additional []string
	}{
		"service":          {"_http._tcp.local.", dns.TypePTR, []string{pointer}, []string{service, text, wired, noHost}},
		"upper case":       {"_HTTP._TcP.LOCAL.", dns.TypePTR, []string{pointer}, []string{service, text, wired, noHost}},
		"instance":         {"monitor-gateway._http._tcp.local.", dns.TypeSRV, []string{service}, []string{wired, noHost}},
		"text":             {"monitor-gateway._http._tcp.local.", dns.TypeTXT, []string{text}, nil},
		"any of instance":  {"Monitor-Gateway._http._tcp.local.", dns.TypeANY, []string{service, text}, []string{wired, noHost}},
		"host":             {"monitor-gateway.local.", dns.TypeA, []string{wired}, []string{noHost}},
		"any of host":      {"MONITOR-GATEWAY.local.", dns.TypeANY, []string{wired}, []string{noHost}},
		"IPv6 of host":     {"monitor-gateway.local.", dns.TypeAAAA, []string{noHost}, nil},
		"MX of instance":   {"monitor-gateway._http._tcp.local.", dns.TypeMX, []string{noMore}, nil},
		"kinds of service": {"_services._dns-sd._udp.local.", dns.TypePTR, []string{services}, nil},
		"reverse":          {"20.1.168.192.in-addr.arpa.", dns.TypePTR, []string{reversed}, nil},
		"reverse of other": {"20.0.0.10.in-addr.arpa.", dns.TypePTR, nil, nil},
		"another host":     {"printer.local.", dns.TypeA, nil, nil},
		"another service":  {"_ipp._tcp.local.", dns.TypePTR, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := started(t)
			s.from(eth, "192.168.1.7:5353", ask(c.name, c.kind, dns.ClassINET))
			s.pass(time.Second)
			sent := s.take()
			if len(c.answer) == 0 {
				if len(sent) != 0 {
					t.Errorf("answered %v", sent)
				}
				return
			}
			if len(sent) != 1 || sent[0].link != eth || sent[0].to.IsValid() {
				t.Fatalf("sent %v, want one answer to everybody on the link", sent)
			}
			same(t, "answer", sent[0].m.Answer, c.answer...)
			same(t, "additional", sent[0].m.Extra, c.additional...)
			if m := sent[0].m; m.Id != 0 || len(m.Question) != 0 || !m.Authoritative {
				t.Errorf("header %+v, questions %v", m.MsgHdr, m.Question)
			}
		})
	}
}

func TestEachLinkHasItsOwnAddress(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.from(wlan, "10.0.3.3:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
	sent := s.take()
	if len(sent) != 1 || sent[0].link != wlan {
		t.Fatalf("sent %v", sent)
	}
	same(t, "answer", sent[0].m.Answer, wireless)
}

func TestLegacyResolver(t *testing.T) {
	t.Parallel()
	s := started(t)
	question := ask("MONITOR-gateway.local.", dns.TypeA, dns.ClassINET)
	s.from(eth, "192.168.1.7:49152", question)
	sent := s.take()
	if len(sent) != 1 || sent[0].to != netip.MustParseAddrPort("192.168.1.7:49152") {
		t.Fatalf("sent %v, want one answer to the asker", sent)
	}
	m := sent[0].m
	if m.Id != 4711 || len(m.Question) != 1 || m.Question[0] != question.Question[0] || !m.Response {
		t.Errorf("%+v %v, want id and question as asked", m.MsgHdr, m.Question)
	}
	same(t, "answer", m.Answer, "monitor-gateway.local. 10 IN A 192.168.1.20")
}

func TestUnicastWanted(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	sent := s.take()
	if len(sent) != 1 || sent[0].to != netip.MustParseAddrPort("192.168.1.7:5353") || sent[0].m.Id != 4711 {
		t.Fatalf("sent %v, want one answer to the asker", sent)
	}
	same(t, "answer", sent[0].m.Answer, wired)

	s.pass(hostTTL * time.Second / 3) // everybody should hear it again
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	if sent := s.take(); len(sent) != 2 || sent[0].to == sent[1].to {
		t.Errorf("sent %v, want one answer to the asker and one to everybody", sent)
	}
}

func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	asked := func(ttl uint32) *dns.Msg {
		q := ask("_http._tcp.local.", dns.TypePTR, dns.ClassINET)
		q.Answer = []dns.RR{
			&dns.PTR{Hdr: dns.RR_Header{Name: "_http._tcp.local.", Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}, Ptr: `HP\ 4\.0._http._tcp.local.`},
			&dns.PTR{Hdr: dns.RR_Header{Name: "_HTTP._tcp.local.", Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}, Ptr: "Monitor-Gateway._http._tcp.local."},
		}
		return q
	}
	s := started(t)
	s.from(eth, "192.168.1.7:5353", asked(otherTTL/2))
	s.pass(time.Second)
	if sent := s.take(); len(sent) != 0 {
		t.Errorf("told %v, which the asker knows", sent)
	}
	s.from(eth, "192.168.1.7:5353", asked(otherTTL/2-1))
	s.pass(time.Second)
	if sent := s.take(); len(sent) != 1 {
		t.Errorf("sent %v, want one answer: what the asker knows ends soon", sent)
	}
	// Half of the known answers come in a second message.
	truncated := ask("_http._tcp.local.", dns.TypePTR, dns.ClassINET)
	truncated.Truncated = true
	s.from(eth, "192.168.1.7:5353", truncated)
	s.pass(300 * time.Millisecond)
	rest := asked(otherTTL)
	rest.Question = nil
	s.from(eth, "192.168.1.7:5353", rest)
	s.pass(time.Second)
	if sent := s.take(); len(sent) != 0 {
		t.Errorf("told %v, which the asker's second message knows", sent)
	}
}

func TestManyAskers(t *testing.T) {
	t.Parallel()
	s := started(t)
	for range 50 {
		s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
		s.from(eth, "192.168.1.8:5353", ask("_http._tcp.local.", dns.TypePTR, dns.ClassINET))
		s.pass(10 * time.Millisecond)
	}
	s.pass(200 * time.Millisecond)
	if sent := s.take(); len(sent) > 2 {
		t.Errorf("%d messages in half a second, want one of each record", len(sent))
	}
	s.pass(time.Second)
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
	if sent := s.take(); len(sent) != 1 {
		t.Errorf("sent %v after a second", sent)
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	s := started(t)
	question, err := ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET).Pack()
	if err != nil {
		t.Fatal(err)
	}
	own := netip.MustParseAddr("192.168.1.20")
	for name, p := range map[string]packet{
		"unicast from another network": {data: question, link: eth, from: netip.MustParseAddrPort("8.8.8.8:5353"), to: own},
		"unknown link":                 {data: question, link: 77, from: netip.MustParseAddrPort("192.168.1.7:5353"), to: own},
		"nowhere":                      {data: question, from: netip.MustParseAddrPort("172.16.1.1:5353")},
		"cut":                          {data: question[:len(question)-3], link: eth, from: netip.MustParseAddrPort("192.168.1.7:5353"), to: own},
		"empty":                        {link: eth, from: netip.MustParseAddrPort("192.168.1.7:5353"), to: own},
	} {
		s.receive(s.now, p)
		s.pass(time.Second)
		if sent := s.take(); len(sent) != 0 {
			t.Errorf("%s: sent %v", name, sent)
		}
	}
	// Where the system does not say the interface, the sender's network does.
	s.receive(s.now, packet{data: question, from: netip.MustParseAddrPort("10.0.9.9:5353")})
	if sent := s.take(); len(sent) != 1 || sent[0].link != wlan {
		t.Errorf("sent %v, want an answer on %d", sent, wlan)
	}
}

func TestAddressChange(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.links[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("192.168.1.99/24")}
	s.update(s.now, s.links)
	s.pass(5 * time.Second)
	sent := s.take()
	if len(sent) != 3 || slices.ContainsFunc(sent, func(l letter) bool { return l.link != eth }) {
		t.Fatalf("sent %v, want a goodbye and two announcements on the link", sent)
	}
	same(t, "goodbye", sent[0].m.Answer,
		"monitor-gateway.local. 0 IN A 192.168.1.20", "20.1.168.192.in-addr.arpa. 0 IN PTR monitor-gateway.local.")
	if lines := texts(sent[1].m.Answer); !slices.Contains(lines, "monitor-gateway.local. 120 IN A 192.168.1.99 flush") {
		t.Errorf("announced %v", lines)
	}
	// A link that goes and comes back begins anew.
	s.update(s.now, s.links[1:])
	s.update(s.now, s.links)
	s.pass(5 * time.Second)
	if sent := s.take(); len(sent) != 5 || sent[0].m.Response {
		t.Errorf("sent %d messages, want three probes and two announcements", len(sent))
	}
}

func TestGoodbye(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.goodbye()
	sent := s.take()
	if len(sent) != 2 {
		t.Fatalf("sent %v, want one goodbye on each link", sent)
	}
	for _, record := range sent[0].m.Answer {
		if record.Header().Ttl != 0 {
			t.Errorf("%s lives on", record)
		}
	}
	if len(sent[0].m.Answer) != 6 {
		t.Errorf("took back %v", texts(sent[0].m.Answer))
	}
}

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

func FuzzReceive(f *testing.F) {
	for _, q := range []*dns.Msg{
		ask("_http._tcp.local.", dns.TypePTR, dns.ClassINET),
		ask("monitor-gateway.local.", dns.TypeANY, dns.ClassINET|cacheFlush),
		{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{
			&dns.A{Hdr: dns.RR_Header{Name: "monitor-gateway.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: []byte{1, 2, 3, 4}},
		}},
	} {
		wire, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, true)
		f.Add(wire, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, legacy bool) {
		s := started(t)
		from := netip.MustParseAddrPort("192.168.1.7:5353")
		if legacy {
			from = netip.MustParseAddrPort("192.168.1.7:1000")
		}
		// Nothing that comes makes it fall over, or fall silent for good.
		s.receive(s.now, packet{data: data, link: eth, from: from, to: netip.MustParseAddr("224.0.0.251")})
		s.pass(30 * time.Second)
		s.take()
		s.from(eth, "192.168.1.8:5353", ask(s.host(), dns.TypeA, dns.ClassINET))
		if sent := s.take(); len(sent) != 1 {
			t.Errorf("sent %v", sent)
		}
	})
}
