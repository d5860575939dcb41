package announce

import (
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/shared/must"
)

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
		if l := young.on(eth); l.Phase != "ready" || l.Host != "monitor-gateway.local" {
			t.Errorf("still %s as %s after half a minute", l.Phase, l.Host)
		}
		// Nothing that comes makes it fall over, or fall silent for good.
		s.receive(s.now, packet{data: data, link: eth, from: from, to: netip.MustParseAddr("224.0.0.251")})
		s.pass(30 * time.Second)
		s.take()
		s.from(eth, "192.168.1.8:5353", ask("monitor-gateway.local.", dns.TypeA, dns.ClassINET))
		s.only()
	})
}
