package announce

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/shared/must"
)

// TestAnswers shows contract 8.14.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name       string
		kind       uint16
		answer     []string
		additional []string
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
				if sent := s.take(); len(sent) != 0 {
					t.Errorf("answered %v", sent)
				}
				return
			}
			sent := s.only()
			if sent.link != eth || sent.to.IsValid() {
				t.Errorf("sent %v, want an answer to everybody on the link", sent)
			}
			same(t, "answer", sent.m.Answer, c.answer...)
			same(t, "additional", sent.m.Extra, c.additional...)
			if m := sent.m; m.Id != 0 || len(m.Question) != 0 || !m.Authoritative {
				t.Errorf("header %+v, questions %v", m.MsgHdr, m.Question)
			}
		})
	}
}

// TestOtherClasses asks for any class, which is answered, and for one that is not the
// Internet's, which is not.
func TestOtherClasses(t *testing.T) {
	t.Parallel()
	for class, answers := range map[uint16]int{dns.ClassANY: 1, dns.ClassCHAOS: 0} {
		s := started(t)
		s.from(eth, "192.168.1.7:49152", ask("monitor-gateway.local.", dns.TypeA, class))
		if sent := s.take(); len(sent) != answers {
			t.Errorf("class %s: sent %v", dns.ClassToString[class], sent)
		}
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
	m := sent.m
	if sent.to != netip.MustParseAddrPort("192.168.1.7:49152") || m.Id != 4711 || len(m.Question) != 1 || m.Question[0] != question.Question[0] || !m.Response {
		t.Errorf("%+v %v, want an answer to the asker with id and question as asked", m.MsgHdr, m.Question)
	}
	same(t, "answer", m.Answer, "monitor-gateway.local. 10 IN A 192.168.1.20")
}

func TestUnicastWanted(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.from(eth, "192.168.1.7:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	sent := s.only()
	same(t, "answer", sent.m.Answer, wired)
	if sent.to != netip.MustParseAddrPort("192.168.1.7:5353") || sent.m.Id != 4711 {
		t.Errorf("sent %v, want an answer to the asker", sent)
	}

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
	if sent := s.take(); len(sent) > 2 {
		t.Errorf("%d messages in half a second, want one of each record", len(sent))
	}
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
		if sent := s.take(); len(sent) != 0 {
			t.Errorf("%s: sent %v", name, sent)
		}
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
	if sent := s.take(); len(sent) != 0 {
		t.Errorf("sent %v", sent)
	}
	s.from(eth, "8.8.8.8:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET|cacheFlush))
	if sent := s.only(); sent.to.IsValid() {
		t.Errorf("sent %v, want an answer to everybody", sent)
	}
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
	sent := s.take()
	if len(sent) != 2 || sent[0].to.IsValid() == sent[1].to.IsValid() {
		t.Errorf("sent %v, want a defence to the prober and one to everybody", sent)
	}
}

// TestHugeMessage holds that a message full of questions and known answers is
// answered once a record.
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
