package announce

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
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
	must.Equal(t, "probes and announcements", [2]int{3, 2}, [2]int{len(probed), len(announced)})
	for _, q := range probed[0].m.Question {
		must.Equal(t, "a probe asks for", [2]uint16{dns.TypeANY, dns.ClassINET}, [2]uint16{q.Qtype, q.Qclass}) // told to everybody
	}
	same(t, "probe", probed[0].m.Ns, strings.TrimSuffix(service, " flush"), strings.TrimSuffix(text, " flush"), strings.TrimSuffix(wired, " flush"))
	same(t, "announcement", announced[0].m.Answer, pointer, services, service, text, wired)
	must.Equal(t, "announced with id", uint16(0), announced[0].m.Id)
}

func TestAddressChange(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.links[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("192.168.1.99/24")}
	s.update(s.now, s.links)
	s.pass(5 * time.Second)
	sent := s.sends(3) // a goodbye and two announcements
	must.Equal(t, "on the links", []int{eth, eth, eth}, []int{sent[0].link, sent[1].link, sent[2].link})
	same(t, "goodbye", sent[0].m.Answer, "monitor-gateway.local. 0 IN A 192.168.1.20")
	announced := strings.Join(texts(sent[1].m.Answer), "\n")
	must.Contain(t, "announced", announced, "monitor-gateway.local. 120 IN A 192.168.1.99 flush")
	// A link that goes and comes back begins again.
	s.update(s.now, s.links[1:])
	s.update(s.now, s.links)
	s.pass(5 * time.Second)
	must.Equal(t, "an announcement comes before three probes", false, s.sends(5)[0].m.Response)
}

func TestGoodbye(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.goodbye()
	sent := s.sends(2) // one on each link
	for _, record := range sent[0].m.Answer {
		must.Equal(t, fmt.Sprintf("%s lives on", record), uint32(0), record.Header().Ttl)
	}
	// Not the kind of service: others may offer it.
	same(t, "goodbye", sent[0].m.Answer, goodbye(pointer), goodbye(service), goodbye(text), goodbye(wired))
}

func TestAnnouncesOnceItCan(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.mute = true
	s.update(s.now, s.links[:1])
	s.pass(time.Hour)
	s.mute = false
	// Whoever asks it directly is answered all the same.
	s.from(eth, "192.168.1.7:49152", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
	s.only()
	s.pass(time.Minute)
	same(t, "announcement", s.sends(announcements)[0].m.Answer, pointer, services, service, text, wired)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	a := New(Config{}, time.Now, logging.Discard())
	a.state = State{Role: RoleStandby}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.Collectors()...)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	want := `# HELP gateway_role 1 for the role of this gateway in its network: active, standby or conflict.
# TYPE gateway_role gauge
gateway_role{role="active"} 0
gateway_role{role="conflict"} 0
gateway_role{role="standby"} 1
`
	must.Equal(t, "metrics", want, page.Body.String())
}

// TestAnswers shows contract 8.14.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name               string
		kind               uint16
		answer, additional []string
	}{
		"service":          {"_http._tcp.local.", dns.TypePTR, []string{pointer}, []string{service, text, wired, hostNSEC}},
		"upper case":       {"_HTTP._TcP.LOCAL.", dns.TypePTR, []string{pointer}, []string{service, text, wired, hostNSEC}},
		"instance":         {"monitor-gateway._http._tcp.local.", dns.TypeSRV, []string{service}, []string{wired, hostNSEC}},
		"text":             {"monitor-gateway._http._tcp.local.", dns.TypeTXT, []string{text}, nil},
		"any of instance":  {"Monitor-Gateway._http._tcp.local.", dns.TypeANY, []string{service, text}, []string{wired, hostNSEC}},
		"host":             {"monitor-gateway.local.", dns.TypeA, []string{wired}, []string{hostNSEC}},
		"any of host":      {"MONITOR-GATEWAY.local.", dns.TypeANY, []string{wired}, []string{hostNSEC}},
		"IPv6 of host":     {"monitor-gateway.local.", dns.TypeAAAA, []string{hostNSEC}, nil},
		"MX of instance":   {"monitor-gateway._http._tcp.local.", dns.TypeMX, []string{instanceNSEC}, nil},
		"kinds of service": {"_services._dns-sd._udp.local.", dns.TypePTR, []string{services}, nil},
		"name of address":  {"20.1.168.192.in-addr.arpa.", dns.TypePTR, nil, nil}, // is the machine's responder's
		"another host":     {"printer.local.", dns.TypeA, nil, nil},
		"another service":  {"_ipp._tcp.local.", dns.TypePTR, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := started(t)
			s.from(eth, "192.168.1.7:5353", ask(c.name, c.kind, dns.ClassINET))
			s.pass(time.Second)
			if len(c.answer) == 0 {
				s.sends(0)
				return
			}
			sent := s.only()
			must.Equal(t, "sent to everybody on the link", true, sent.link == eth && !sent.to.IsValid())
			same(t, "answer", sent.m.Answer, c.answer...)
			same(t, "additional", sent.m.Extra, c.additional...)
			must.Equal(t, "header", dns.MsgHdr{Response: true, Authoritative: true}, sent.m.MsgHdr)
			must.Equal(t, "questions", 0, len(sent.m.Question))
		})
	}
}

// TestOtherClasses asks for any class, which is answered, and for one that is not the Internet's, which is not.
func TestOtherClasses(t *testing.T) {
	t.Parallel()
	for class, answers := range map[uint16]int{dns.ClassANY: 1, dns.ClassCHAOS: 0} {
		s := started(t)
		s.from(eth, "192.168.1.7:49152", ask("monitor-gateway.local.", dns.TypeA, class))
		s.sends(answers)
	}
}

// TestEachLinkHasItsOwnAddress shows contract 8.14.
func TestEachLinkHasItsOwnAddress(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.from(wlan, "10.0.3.3:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
	sent := s.only()
	same(t, "answer", sent.m.Answer, wireless)
	must.Equal(t, "sent on link", wlan, sent.link)
}

func TestLegacyResolver(t *testing.T) {
	t.Parallel()
	s := started(t)
	question := ask("MONITOR-gateway.local.", dns.TypeA, dns.ClassINET)
	s.from(eth, "192.168.1.7:49152", question)
	sent := s.only()
	must.Equal(t, "sent to", "192.168.1.7:49152", sent.to.String())
	must.Equal(t, "id", uint16(4711), sent.m.Id)
	must.Equal(t, "question", question.Question, sent.m.Question)
	must.Equal(t, "a response", true, sent.m.Response)
	same(t, "answer", sent.m.Answer, "monitor-gateway.local. 10 IN A 192.168.1.20")
}

func TestUnicastWanted(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	sent := s.only()
	same(t, "answer", sent.m.Answer, wired)
	must.Equal(t, "sent, with the question's id", "4711 192.168.1.7:5353", fmt.Sprint(sent.m.Id, " ", sent.to))

	s.pass(hostTTL * time.Second / 3) // everybody should hear it again
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	both := s.sends(2) // one answer to the asker and one to everybody
	must.Equal(t, "both are to the same", false, both[0].to == both[1].to)
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
	s.sends(0) // the asker knows it
	s.from(eth, "192.168.1.7:5353", asked(otherTTL/2-1))
	s.pass(time.Second)
	s.only() // what the asker knows ends soon
}

func TestManyAskers(t *testing.T) {
	t.Parallel()
	s := started(t)
	for range 50 {
		s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
		free := s.responder.links[eth].pending.due.IsZero()
		s.from(eth, "192.168.1.8:5353", ask("_http._tcp.local.", dns.TypePTR, dns.ClassINET))
		if delay := s.responder.links[eth].pending.due.Sub(s.now); free && (delay < 20*time.Millisecond || delay > 120*time.Millisecond) {
			t.Errorf("what others answer too is answered after %s", delay) // §6
		}
		s.pass(10 * time.Millisecond)
	}
	s.pass(200 * time.Millisecond)
	sent := s.take()
	must.Hold(t, len(sent) <= 2, "%d messages in half a second, want one of each record", len(sent))
	s.pass(time.Second)
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
	s.only()
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	s := started(t)
	question := must.Get(ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET).Pack())(t)
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
		must.Equal(t, name+" is answered", 0, len(s.take()))
	}
}

func TestFirstAddressIsTheAskersOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.links[0].Prefixes = []netip.Prefix{
		netip.MustParsePrefix("10.9.0.20/24"), netip.MustParsePrefix("169.254.7.7/16"), netip.MustParsePrefix("192.168.1.20/24"),
	}
	s.update(s.now, s.links)
	s.pass(10 * time.Second)
	announced := s.take()
	for asker, want := range map[string][]string{
		"10.9.0.7:49152":    {"10.9.0.20", "192.168.1.20", "169.254.7.7"},
		"192.168.1.7:49152": {"192.168.1.20", "10.9.0.20", "169.254.7.7"},
		"169.254.1.1:49152": {"169.254.7.7", "10.9.0.20", "192.168.1.20"},
	} {
		s.from(eth, asker, ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
		must.Equal(t, "told "+asker, want, hosts(s.only().m.Answer))
	}
	for _, l := range announced {
		if l.link == eth && l.m.Response && !slices.Equal(hosts(l.m.Answer), []string{"10.9.0.20", "192.168.1.20", "169.254.7.7"}) {
			t.Errorf("announced %v", hosts(l.m.Answer))
		}
	}
}

// hosts are the addresses of records, in their order.
func hosts(records []dns.RR) []string {
	var found []string
	for _, record := range records {
		if a, ok := record.(*dns.A); ok {
			found = append(found, a.A.String())
		}
	}
	return found
}

func TestUnicastStaysOnTheLink(t *testing.T) {
	t.Parallel()
	s := started(t)
	// By multicast anything can say that it comes from anywhere.
	s.from(eth, "8.8.8.8:53", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
	s.pass(time.Second)
	s.sends(0)
	s.from(eth, "8.8.8.8:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	sent := s.only()
	must.Hold(t, !sent.to.IsValid(), "sent %v, want an answer to everybody", sent)
}

func TestProbersWithASharedPortHearToo(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET)) // it was just said
	s.take()
	s.pass(defendAfter)
	probe := ask("monitor-gateway.local.", dns.TypeANY, dns.ClassINET|cacheFlush)
	probe.Ns = []dns.RR{claim()}
	s.from(eth, "192.168.1.66:5353", probe)
	sent := s.sends(2) // a defence to the prober and one to everybody
	must.Equal(t, "both are to the same", false, sent[0].to.IsValid() == sent[1].to.IsValid())
}

// TestHugeMessage holds that a message full of questions and known answers is answered once a record.
func TestHugeMessage(t *testing.T) {
	t.Parallel()
	s := started(t)
	m := &dns.Msg{Compress: true}
	for range 400 {
		m.Question = append(m.Question, ask("monitor-gateway.local.", dns.TypeANY, dns.ClassINET).Question...)
		m.Answer = append(m.Answer, claim())
	}
	s.from(eth, "192.168.1.7:5353", m)
	same(t, "answer", s.only().m.Answer, wired)
}

func FuzzReceive(f *testing.F) {
	for _, q := range []*dns.Msg{
		ask("_http._tcp.local.", dns.TypePTR, dns.ClassINET),
		ask("monitor-gateway.local.", dns.TypeANY, dns.ClassINET|cacheFlush),
		{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{
			&dns.A{Hdr: dns.RR_Header{Name: "monitor-gateway.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 120}, A: []byte{1, 2, 3, 4}},
		}},
	} {
		wire := must.Get(q.Pack())(f)
		f.Add(wire, true)
		f.Add(wire, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, legacy bool) {
		s := started(t)
		young := newSite(t, 1) // still asking whether its names are free
		young.update(young.now, young.links)
		from := netip.MustParseAddrPort("192.168.1.7:5353")
		if legacy {
			from = netip.MustParseAddrPort("192.168.1.7:1000")
		}
		young.receive(young.now, packet{data: data, link: eth, from: from, to: netip.MustParseAddr("224.0.0.251")})
		young.pass(30 * time.Second)
		must.Contain(t, "after half a minute it", young.is(eth), "specified ready")
		// Nothing that comes makes it fall over, or fall silent for good.
		s.receive(s.now, packet{data: data, link: eth, from: from, to: netip.MustParseAddr("224.0.0.251")})
		s.pass(30 * time.Second)
		s.take()
		s.from(eth, "192.168.1.8:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
		s.only()
	})
}

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

// take returns what was sent since the last call, without questions for other gateways: pair_test.go looks at these.
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
	lines := texts(got)
	must.Hold(t, slices.Equal(lines, want), "%s:\n%s\nwant\n%s", what, strings.Join(lines, "\n"), strings.Join(want, "\n"))
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
