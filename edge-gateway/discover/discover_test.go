package discover

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/mdns"
	"github.com/miekg/dns"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// address is a record of a name.
func address(name, value string, ttl uint32) dns.RR {
	return &dns.A{
		Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl},
		A:   netip.MustParseAddr(value).AsSlice(),
	}
}

func TestAnswered(t *testing.T) {
	t.Parallel()
	own, second := address("monitor-gateway.local.", "192.168.1.20", 120), address("Monitor-Gateway.LOCAL.", "10.0.0.20", 120)
	asked := question(Legacy)
	service := slices.Clone(asked.Question)
	service[0].Qtype = dns.TypeANY
	for name, c := range map[string]struct {
		mode          Way
		response      bool
		id            uint16
		question      []dns.Question
		answer, extra []dns.RR
		want          string
	}{
		"an address":                  {Multicast, true, 0, nil, []dns.RR{own}, nil, "[192.168.1.20]"},
		"two, one beside the answer":  {Unicast, true, 0, nil, []dns.RR{own}, []dns.RR{second, own}, "[192.168.1.20 10.0.0.20]"},
		"another host's":              {Multicast, true, 0, nil, []dns.RR{address("printer.local.", "192.168.1.9", 120)}, nil, "[]"},
		"a renamed gateway's":         {Multicast, true, 0, nil, []dns.RR{address("monitor-gateway-2.local.", "192.168.1.9", 120)}, nil, "[]"},
		"a goodbye":                   {Multicast, true, 0, nil, []dns.RR{address("monitor-gateway.local.", "192.168.1.20", 0)}, nil, "[]"},
		"a question":                  {Multicast, false, 0, asked.Question, []dns.RR{own}, nil, "[]"},
		"legacy with id and question": {Legacy, true, asked.Id, asked.Question, []dns.RR{own}, nil, "[192.168.1.20]"},
		"legacy with another id":      {Legacy, true, asked.Id + 1, asked.Question, []dns.RR{own}, nil, "[]"},
		"legacy to another question":  {Legacy, true, asked.Id, service, []dns.RR{own}, nil, "[]"},
		"legacy without a question":   {Legacy, true, asked.Id, nil, []dns.RR{own}, nil, "[]"},
	} {
		m := dns.Msg{MsgHdr: dns.MsgHdr{Id: c.id, Response: c.response}, Question: c.question, Answer: c.answer, Extra: c.extra}
		must.Equal(t, name+": found", c.want, fmt.Sprint(answered(c.mode, asked, must.Get(m.Pack())(t))))
	}
}

// lateContext is one whose deadline is over and whose timer is late.
type lateContext struct {
	context.Context

	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// TestResolveEndsAtTheDeadline asks no more questions from the deadline on, though the context has not ended.
func TestResolveEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	interfaces, err := Interfaces()
	if err != nil || len(interfaces) == 0 {
		tooltest.Skip(t, "no interface to ask on: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = Resolve(lateContext{ctx, time.Now()}, interfaces[0], Legacy)
	must.Fail(t, "it ends", err, ErrNotFound)
	must.Do(t, ctx.Err()) // it ended at the deadline, not with the context
}

func TestGateway(t *testing.T) {
	t.Parallel()
	entry := func(name, host, address string, port int) *mdns.ServiceEntry {
		return &mdns.ServiceEntry{Name: name, Host: host, AddrV4: net.ParseIP(address), Port: port, InfoFields: []string{"version=1.0"}}
	}
	plain := entry("monitor-gateway._http._tcp.local.", "monitor-gateway.local.", "192.168.1.20", 8080)
	second := entry("Monitor-Gateway-2._http._tcp.local.", "monitor-gateway-2.local.", "192.168.1.30", 8081)
	found := Gateway{
		Instance: "monitor-gateway", Host: "monitor-gateway.local", Address: netip.MustParseAddr("192.168.1.20"),
		Port: 8080, Text: []string{"version=1.0"},
	}
	others := []*mdns.ServiceEntry{
		entry("HP-LaserJet._http._tcp.local.", "printer.local.", "192.168.1.9", 80),
		entry("monitor-gateway-test._http._tcp.local.", "test.local.", "192.168.1.9", 80),
		entry("monitor-gateway._ipp._tcp.local.", "monitor-gateway.local.", "192.168.1.9", 631),
		entry("monitor-gateway.local.", "", "192.168.1.20", 0),
		{Name: "monitor-gateway._http._tcp.local.", Host: "monitor-gateway.local.", Port: 8080},
	}
	for name, c := range map[string]struct {
		heard []*mdns.ServiceEntry
		want  Gateway
	}{
		"nobody":                      {nil, Gateway{}},
		"others":                      {others, Gateway{}},
		"the gateway among others":    {append(slices.Clone(others), plain), found},
		"the one with the plain name": {[]*mdns.ServiceEntry{second, plain}, found},
		"a renamed one": {
			[]*mdns.ServiceEntry{second},
			Gateway{Instance: "Monitor-Gateway-2", Host: "monitor-gateway-2.local", Address: netip.MustParseAddr("192.168.1.30"), Port: 8081, Text: []string{"version=1.0"}},
		},
	} {
		got, ok := gateway(c.heard)
		must.Equal(t, name+": one is found", c.want.Port > 0, ok)
		must.Equal(t, name+": the gateway", c.want, got, cmpopts.EquateComparable(netip.Addr{}))
	}
}

func FuzzAnswered(f *testing.F) {
	for _, name := range []string{"monitor-gateway.local.", "printer.local."} {
		m := dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{address(name, "192.168.1.20", 120)}}
		wire := must.Get(m.Pack())(f)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range answered(Multicast, question(Multicast), data) {
			must.Hold(t, a.Is4(), "took %s for an address", a)
		}
	})
}
