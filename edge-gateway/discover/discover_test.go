package discover

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// gateway is what a responder answers about an instance.
func gateway(label, address string) []dns.RR {
	header := func(name string, kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 120}
	}
	instance := label + "." + serviceType
	return []dns.RR{
		&dns.PTR{Hdr: header(serviceType, dns.TypePTR), Ptr: instance},
		&dns.SRV{Hdr: header(instance, dns.TypeSRV), Port: 8080, Target: label + ".local."},
		&dns.TXT{Hdr: header(instance, dns.TypeTXT), Txt: []string{"version=1.0"}},
		&dns.A{Hdr: header(label+".local.", dns.TypeA), A: netip.MustParseAddr(address).AsSlice()},
	}
}

// tell gives a question's inquiry an answer.
func tell(t *testing.T, q *inquiry, m *dns.Msg) {
	t.Helper()
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	q.take(wire, netip.MustParseAddr("192.168.1.20"))
}

func TestTake(t *testing.T) {
	t.Parallel()
	records := gateway("monitor-gateway", "192.168.1.20")
	gone := slices.Clone(records)
	gone[0] = dns.Copy(records[0])
	gone[0].Header().Ttl = 0
	question := []dns.Question{{Name: serviceType, Qtype: dns.TypePTR, Qclass: dns.ClassINET}}
	for name, c := range map[string]struct {
		mode     Mode
		response bool
		id       uint16
		question []dns.Question
		answer   []dns.RR
		extra    []dns.RR
		want     string // URL; empty for nothing found
	}{
		"all in one answer":            {Multicast, true, 0, nil, records, nil, "http://192.168.1.20:8080"},
		"the rest beside the answer":   {Multicast, true, 0, nil, records[:1], records[1:], "http://192.168.1.20:8080"},
		"in another order":             {Unicast, true, 0, nil, []dns.RR{records[3], records[1], records[0]}, nil, "http://192.168.1.20:8080"},
		"a renamed gateway":            {Multicast, true, 0, nil, gateway("Monitor-Gateway-2", "192.168.1.30"), nil, "http://192.168.1.30:8080"},
		"a printer":                    {Multicast, true, 0, nil, gateway("HP-LaserJet", "192.168.1.9"), nil, ""},
		"something with a longer name": {Multicast, true, 0, nil, gateway("monitor-gateway-test", "192.168.1.9"), nil, ""},
		"a goodbye":                    {Multicast, true, 0, nil, gone, nil, ""},
		"a question":                   {Multicast, false, 0, question, records, nil, ""},
		"legacy with id and question":  {Legacy, true, 7, question, records, nil, "http://192.168.1.20:8080"},
		"legacy with another id":       {Legacy, true, 8, question, records, nil, ""},
		"legacy to another question":   {Legacy, true, 7, []dns.Question{{Name: serviceType, Qtype: dns.TypeSRV, Qclass: dns.ClassINET}}, records, nil, ""},
		"legacy without a question":    {Legacy, true, 7, nil, records, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := inquiry{mode: c.mode, id: 7, asked: question[0]}
			tell(t, &q, &dns.Msg{MsgHdr: dns.MsgHdr{Id: c.id, Response: c.response}, Question: c.question, Answer: c.answer, Extra: c.extra})
			got := ""
			if len(q.found.Addresses) > 0 {
				got = q.found.URL()
			}
			if got != c.want {
				t.Errorf("found %q, want %q: %+v", got, c.want, q.found)
			}
		})
	}
}

func TestTakePieceByPiece(t *testing.T) {
	t.Parallel()
	q := inquiry{mode: Multicast}
	for _, record := range gateway("monitor-gateway", "192.168.1.20") {
		tell(t, &q, &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{record}})
		// Another gateway does not mix itself in.
		tell(t, &q, &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: gateway("monitor-gateway-2", "192.168.1.30")})
	}
	if q.found.URL() != "http://192.168.1.20:8080" || q.found.Instance != "monitor-gateway" || !slices.Equal(q.found.Text, []string{"version=1.0"}) {
		t.Errorf("found %+v", q.found)
	}
}

func FuzzTake(f *testing.F) {
	for _, label := range []string{"monitor-gateway", "monitor-gateway-2", "printer"} {
		m := dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: gateway(label, "192.168.1.20")}
		wire, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := inquiry{mode: Multicast}
		q.take(data, netip.MustParseAddr("192.168.1.20"))
		if q.found.Instance != "" && !named(q.found.Instance) {
			t.Errorf("took %q for a gateway", q.found.Instance)
		}
		for _, a := range q.found.Addresses {
			if !a.Is4() {
				t.Errorf("took %s for an address", a)
			}
		}
	})
}
