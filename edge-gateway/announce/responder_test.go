package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

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
	if len(probed) != 3 || len(announced) != 2 {
		t.Fatalf("%d probes and %d announcements, want 3 and 2", len(probed), len(announced))
	}
	for _, q := range probed[0].m.Question {
		if q.Qtype != dns.TypeANY || q.Qclass != dns.ClassINET {
			t.Errorf("probe asks %v, want any of the name, told to everybody", q)
		}
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
	sent := s.take()
	if len(sent) != 3 || slices.ContainsFunc(sent, func(l letter) bool { return l.link != eth }) {
		t.Fatalf("sent %v, want a goodbye and two announcements on the link", sent)
	}
	same(t, "goodbye", sent[0].m.Answer, "monitor-gateway.local. 0 IN A 192.168.1.20")
	if lines := texts(sent[1].m.Answer); !slices.Contains(lines, "monitor-gateway.local. 120 IN A 192.168.1.99 flush") {
		t.Errorf("announced %v", lines)
	}
	// A link that goes and comes back begins again.
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
	sent := s.take()
	if len(sent) != announcements {
		t.Fatalf("sent %v, want two announcements", sent)
	}
	same(t, "announcement", sent[0].m.Answer, pointer, services, service, text, wired)
}
