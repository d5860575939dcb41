package netnstest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/shared/tooltest"
)

const hostname = "monitor-gateway.local."

// site is a gateway with two interfaces and a client on each.
type site struct {
	*gateway

	clients map[string]*host // by the address that the gateway has on their link
}

func newSite(t *testing.T) site {
	t.Helper()
	machine, wired, wireless := newHost(t), newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", wired, "192.168.77.10/24")
	cable(machine, "wlan0", "10.66.0.2/16", wireless, "10.66.3.10/16")
	for _, client := range []*host{wired, wireless} {
		client.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
	}
	return site{machine.startGateway(), map[string]*host{"192.168.77.2": wired, "10.66.0.2": wireless}}
}

// TestEveryClientFindsIt asks on both links in all ways.
func TestEveryClientFindsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ready(2)
	for address, client := range s.clients {
		t.Run("on the link of "+address, func(t *testing.T) {
			t.Parallel()
			// One after the other: they share their host's port.
			for _, p := range []play{
				{Client: "lwip", Name: hostname, Type: dns.TypeA},
				{Client: "lwip", Name: hostname, Type: dns.TypeANY},
				{Client: "lwip", Name: "Monitor-GATEWAY.Local.", Type: dns.TypeA},
				{Client: "esp", Name: hostname, Type: dns.TypeA},
				{Client: "esp", Name: "MONITOR-gateway.local.", Type: dns.TypeANY},
				{Client: "multicast", Name: hostname, Type: dns.TypeA},
				{Client: "multicast", Name: "monitor-gateway.LOCAL.", Type: dns.TypeANY},
			} {
				if got, err := client.plays(p); err != nil || got != address {
					t.Errorf("%s asks for %s %s: %q, %v, want %s", p.Client, p.Name, dns.TypeToString[p.Type], got, err, address)
				}
			}
			for _, way := range []discover.Way{discover.Legacy, discover.Unicast, discover.Multicast} {
				if got, err := client.plays(play{Client: "resolve", Way: way}); err != nil || got != "["+address+"]" {
					t.Errorf("doctor, that asks by %s, finds %s, %v, want %s", way, got, err, address)
				}
			}
			want := fmt.Sprintf(`{"Instance":"monitor-gateway","Host":"monitor-gateway.local",`+
				`"Address":%q,"Port":%d,"Text":["version=1.0"]}`, address, port)
			got, err := client.plays(play{Client: "browse"})
			if err != nil {
				t.Errorf("hashicorp/mdns: %v", err)
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("hashicorp/mdns (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDig asks the gateway's address: dig 9.18 connects its socket, so that it
// hears nobody who answers what it sent to the group.
func TestDig(t *testing.T) {
	t.Parallel()
	dig := need(t, "dig")
	s := newSite(t)
	s.ready(2)
	for address, client := range s.clients {
		ask := func(arguments ...string) string {
			t.Helper()
			out, err := client.says(nil, dig, append([]string{"@" + address, "-p", "5353", "+short", "+notcp", "+time=5", "+tries=3"}, arguments...)...)
			if err != nil {
				t.Errorf("dig %v: %v", arguments, err)
			}
			return out
		}
		for question, want := range map[string]string{
			"monitor-gateway.local A":              address,
			"Monitor-Gateway.LOCAL A":              address,
			"_http._tcp.local PTR":                 "monitor-gateway._http._tcp.local.",
			"monitor-gateway._http._tcp.local SRV": fmt.Sprintf("0 0 %d monitor-gateway.local.", port),
			"monitor-gateway._http._tcp.local TXT": `"version=1.0"`,
			"_services._dns-sd._udp.local PTR":     "_http._tcp.local.",
		} {
			if got := ask(strings.Fields(question)...); got != want {
				t.Errorf("dig %s on the link of %s: %q, want %q", question, address, got, want)
			}
		}
	}
}

func TestAvahi(t *testing.T) {
	t.Parallel()
	resolve, browse := need(t, "avahi-resolve"), need(t, "avahi-browse")
	s := newSite(t)
	s.ready(2)
	for address, client := range s.clients {
		environ := startAvahi(t, client, "client")
		var got string
		eventually(t, "Avahi on the link of "+address+" resolves", func() bool {
			out, err := client.says(environ, resolve, "-4", "-n", "monitor-gateway.local")
			got = strings.Join(strings.Fields(out), " ")
			return err == nil && got != ""
		})
		if want := "monitor-gateway.local " + address; got != want {
			t.Errorf("avahi-resolve: %q, want %q", got, want)
		}
		out, err := client.says(environ, browse, "--resolve", "--terminate", "--parsable", "_http._tcp")
		want := fmt.Sprintf(`=;eth0;IPv4;monitor-gateway;Web Site;local;monitor-gateway.local;%s;%d;"version=1.0"`, address, port)
		if err != nil || !slices.Contains(strings.Split(out, "\n"), want) {
			t.Errorf("avahi-browse: %v\n%s\nwant %s", err, out, want)
		}
	}
}

func TestPythonZeroconf(t *testing.T) {
	t.Parallel()
	python := "/usr/bin/python3"
	if _, err := newHost(t).says(nil, python, "-c", "import zeroconf"); err != nil {
		tooltest.Missing(t, "python3-zeroconf")
	}
	s := newSite(t)
	s.ready(2)
	for address, client := range s.clients {
		got, err := client.says(nil, python, "-c", `
import zeroconf
z = zeroconf.Zeroconf(ip_version=zeroconf.IPVersion.V4Only)
i = z.get_service_info("_http._tcp.local.", "monitor-gateway._http._tcp.local.", 20000)
print(i.server, i.port, i.parsed_addresses(zeroconf.IPVersion.V4Only), i.properties)
z.close()`)
		want := fmt.Sprintf("monitor-gateway.local. %d ['%s'] {b'version': b'1.0'}", port, address)
		if err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

// TestAddressesComeAndChange starts a gateway that has no network at all.
func TestAddressesComeAndChange(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	g := machine.startGateway()
	eventually(t, "the gateway serves without a network", func() bool { return g.state().Host == "monitor-gateway.local" })

	find := play{Client: "lwip", Name: hostname, Type: dns.TypeA, Patience: briefly}
	finds := func(want string) func() bool {
		return func() bool {
			got, err := client.plays(find)
			return err == nil && got == want
		}
	}
	cable(machine, "eth0", "", client, "192.168.77.10/24")
	if got, err := client.plays(find); err == nil {
		t.Errorf("found at %s before it had an address", got)
	}
	machine.ip("address", "add", "192.168.77.2/24", "dev", "eth0") // late DHCP
	eventually(t, "found at its first address", finds("192.168.77.2"))
	machine.ip("address", "delete", "192.168.77.2/24", "dev", "eth0")
	machine.ip("address", "add", "192.168.77.3/24", "dev", "eth0")
	eventually(t, "found at its next address", finds("192.168.77.3"))
	machine.ip("link", "set", "eth0", "down")
	machine.ip("link", "set", "eth0", "up")
	eventually(t, "found after the cable was out", finds("192.168.77.3"))
	// The same from afar: the switch loses power, the address stays.
	client.ip("link", "set", "eth0", "down")
	eventually(t, "a link without a carrier is not announced on", func() bool { return len(g.state().Links) == 0 })
	client.ip("link", "set", "eth0", "up")
	eventually(t, "found after the switch was off", finds("192.168.77.3"))
	machine.ip("link", "delete", "eth0")
	cable(machine, "eth1", "192.168.77.4/24", client, "192.168.77.10/24")
	eventually(t, "found by another adapter", finds("192.168.77.4"))
}

// TestGoodbye holds that a gateway that is stopped tells everybody so.
func TestGoodbye(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", client, "192.168.77.10/24")
	g := machine.startGateway()
	g.ready(1)
	listener, _ := client.playing(play{Client: "listener", Name: hostname})
	if line := listener(); line != "listening" {
		t.Fatalf("the listener says %q", line)
	}
	g.end(syscall.SIGTERM)
	if line := listener(); line != "goodbye 192.168.77.2" {
		t.Errorf("the listener says %q", line)
	}
	if got, err := client.plays(play{Client: "lwip", Name: hostname, Type: dns.TypeA, Patience: briefly}); err == nil {
		t.Errorf("still found at %s", got)
	}
}

// TestAddressGoes holds that everybody is told when one of two addresses goes.
func TestAddressGoes(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", client, "192.168.77.10/24")
	machine.ip("address", "add", "192.168.78.2/24", "dev", "eth0")
	g := machine.startGateway()
	eventually(t, "both addresses are announced", func() bool {
		links := g.state().Links
		return len(links) == 1 && links[0].Phase == "ready" && strings.HasPrefix(strings.Join(links[0].Addresses, " "), "192.168.77.2 192.168.78.2")
	})
	listener, _ := client.playing(play{Client: "listener", Name: hostname})
	if line := listener(); line != "listening" {
		t.Fatalf("the listener says %q", line)
	}
	machine.ip("address", "delete", "192.168.78.2/24", "dev", "eth0")
	if line := listener(); line != "goodbye 192.168.78.2" {
		t.Errorf("the listener says %q", line)
	}
}

// TestMulticastRefused has a machine that lets nobody join the group: the gateway
// serves, says so, and is found as soon as it may join.
func TestMulticastRefused(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", client, "192.168.77.10/24")
	allow := func(memberships int) {
		t.Helper()
		line := fmt.Sprintf("echo %d > /proc/sys/net/ipv4/igmp_max_memberships", memberships)
		if _, err := machine.says(nil, "sh", "-c", line); err != nil {
			tooltest.Unable(t, "multicast cannot be refused here: %v", err)
		}
	}
	allow(0)
	g := machine.startGateway()
	eventually(t, "the gateway serves and says what is wrong", func() bool {
		links := g.state().Links
		return len(links) == 1 && links[0].Phase == "waiting" && strings.Contains(links[0].Error, "join the multicast group")
	})
	allow(20)
	g.ready(1)
	if fault := g.state().Links[0].Error; fault != "" {
		t.Errorf("still at fault: %s", fault)
	}
	if got, err := client.plays(play{Client: "multicast", Name: hostname, Type: dns.TypeA}); err != nil || got != "192.168.77.2" {
		t.Errorf("found at %q, %v", got, err)
	}
}

// TestPortTaken lets a program have the port for itself for a time: the gateway
// serves, says why it is not found, and is found as soon as it can be.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", client, "192.168.77.10/24")
	line, leave := machine.playing(play{Client: "selfish"})
	if got := line(); got != "listening" {
		t.Fatalf("the other program says %q", got)
	}
	g := machine.startGateway()
	eventually(t, "the gateway serves and says what is wrong", func() bool {
		return strings.Contains(g.state().Error, "address already in use")
	})
	leave()
	g.ready(1)
	if got, err := client.plays(play{Client: "lwip", Name: hostname, Type: dns.TypeA}); err != nil || got != "192.168.77.2" {
		t.Errorf("found at %q, %v", got, err)
	}
}
