package discover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		mode     Way
		response bool
		id       uint16
		question []dns.Question
		answer   []dns.RR
		extra    []dns.RR
		want     string
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := dns.Msg{MsgHdr: dns.MsgHdr{Id: c.id, Response: c.response}, Question: c.question, Answer: c.answer, Extra: c.extra}
			wire := must.Get(m.Pack())(t)
			a := Answer{Way: c.mode}
			a.hear(asked, wire)
			must.Equal(t, "found", c.want, fmt.Sprint(a.Addresses))
		})
	}
}

// lateContext is one whose deadline is over and whose timer is late.
type lateContext struct {
	context.Context

	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// TestAskEndsAtTheDeadline asks no more questions from the deadline on, though the
// context has not ended.
func TestAskEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	interfaces, err := Interfaces()
	if err != nil || len(interfaces) == 0 {
		tooltest.Skip(t, "no interface to ask on: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if a := Ask(lateContext{ctx, time.Now()}, interfaces[0], Legacy)[0]; !errors.Is(a.Err, ErrNotFound) {
		t.Errorf("it ends with %v", a.Err)
	}
	if ctx.Err() != nil {
		t.Error("it ended with the context, not at the deadline")
	}
}

func TestBrowsing(t *testing.T) {
	t.Parallel()
	type entry struct {
		name, host, address string
		port                uint16
	}
	plain := entry{"monitor-gateway._http._tcp.local.", "monitor-gateway.local.", "192.168.1.20", 8080}
	second := entry{"Monitor-Gateway-2._http._tcp.local.", "monitor-gateway-2.local.", "192.168.1.30", 8081}
	others := []entry{
		{"HP-LaserJet._http._tcp.local.", "printer.local.", "192.168.1.9", 80},
		{"monitor-gateway-test._http._tcp.local.", "test.local.", "192.168.1.9", 80},
		{"monitor-gateway._ipp._tcp.local.", "monitor-gateway.local.", "192.168.1.9", 631},
		{"monitor-gateway._http._tcp.local.", "monitor-gateway.local.", "192.168.1.20", 0},
		{"monitor-gateway._http._tcp.local.", "monitor-gateway.local.", "", 8080},
	}
	gateway := Gateway{Instance: "monitor-gateway", Host: "monitor-gateway.local", Address: netip.MustParseAddr("192.168.1.20"), Port: 8080, Text: []string{"version=1.0"}}
	for name, c := range map[string]struct {
		heard []entry
		want  Gateway
		done  bool
	}{
		"nobody":                      {nil, Gateway{}, false},
		"others":                      {others, Gateway{}, false},
		"the gateway among others":    {append(slices.Clone(others), plain), gateway, true},
		"the one with the plain name": {[]entry{second, plain}, gateway, true},
		"a renamed one": {
			[]entry{second},
			Gateway{Instance: "Monitor-Gateway-2", Host: "monitor-gateway-2.local", Address: netip.MustParseAddr("192.168.1.30"), Port: 8081, Text: []string{"version=1.0"}},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, done, asked := Answer{Way: Browsing}, false, question(Browsing)
			for _, e := range c.heard {
				header := func(kind uint16) dns.RR_Header {
					return dns.RR_Header{Name: e.name, Rrtype: kind, Class: dns.ClassINET, Ttl: 120}
				}
				m := dns.Msg{MsgHdr: dns.MsgHdr{Id: asked.Id, Response: true}, Question: asked.Question, Extra: []dns.RR{
					&dns.SRV{Hdr: header(dns.TypeSRV), Port: e.port, Target: e.host}, &dns.TXT{Hdr: header(dns.TypeTXT), Txt: []string{"version=1.0"}},
				}}
				if e.address != "" {
					m.Extra = append(m.Extra, address(e.host, e.address, 120))
				}
				done = a.hear(asked, must.Get(m.Pack())(t)) || done
			}
			if diff := cmp.Diff(c.want, a.Service, cmpopts.EquateComparable(netip.Addr{})); diff != "" || done != c.done {
				t.Errorf("done: %t (-want +got):\n%s", done, diff)
			}
		})
	}
}

func FuzzAnswered(f *testing.F) {
	for _, name := range []string{"monitor-gateway.local.", "printer.local."} {
		m := dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{address(name, "192.168.1.20", 120)}}
		wire := must.Get(m.Pack())(f)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		answer := Answer{Way: Multicast}
		answer.hear(question(Multicast), data)
		for _, a := range answer.Addresses {
			if !a.Is4() {
				t.Errorf("took %s for an address", a)
			}
		}
	})
}
