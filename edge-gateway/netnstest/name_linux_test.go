package netnstest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/shared/must"
)

// newSwitch makes a switch; [host.plug] joins hosts to it.
func newSwitch(t *testing.T) *host {
	t.Helper()
	s := newHost(t)
	s.ip("link", "add", "bridge", "type", "bridge")
	s.ip("link", "set", "bridge", "up")
	return s
}

// plug joins an interface of a host to a switch and gives it an address.
func (h *host) plug(other *host, name, address string) {
	h.t.Helper()
	port := fmt.Sprintf("port%d", hosts.Add(1))
	h.ip("link", "add", port, "type", "veth", "peer", "name", name, "netns", other.name)
	h.ip("link", "set", port, "master", "bridge", "up")
	other.ip("address", "add", address, "dev", name)
	other.ip("link", "set", name, "up")
}

func bridged(t *testing.T, addresses ...string) (joined []*host) {
	t.Helper()
	between := newSwitch(t)
	for _, address := range addresses {
		h := newHost(t)
		between.plug(h, "eth0", address)
		joined = append(joined, h)
	}
	return joined
}

// finds reports whether a node is told this address of the specified name.
func (h *host) finds(want string) bool {
	got, err := h.plays(play{Client: "lwip", Name: hostname, Type: dns.TypeA, Patience: briefly})
	return err == nil && got == want
}

// TestNameIsLostAndTakenBack starts beside a device that has the name.
func TestNameIsLostAndTakenBack(t *testing.T) {
	t.Parallel()
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.10/24", "192.168.77.66/24")
	rival := hosts[2].playing(play{Client: "rival", Name: hostname, Claimed: netip.MustParseAddr("192.168.77.66")})
	must.Equal(t, "the other device says", "has the name", rival.line())
	g := hosts[0].startGateway()
	g.becomes(announce.RoleConflict, "monitor-gateway-")
	var h health
	must.Eventually(t, "it says who has its name", func() bool {
		h = g.health()
		return h.Status == "degraded" && strings.HasPrefix(h.Discovery.Host, "monitor-gateway-") &&
			h.Discovery.Problem == "another device, 192.168.77.66, has monitor-gateway.local"
	})
	must.Equal(t, "under its own name it is", "192.168.77.2", must.Get(hosts[1].plays(play{Client: "lwip", Name: h.Discovery.Host + ".", Type: dns.TypeA}))(t))
	rival.end()
	must.Eventually(t, "it has its name back", func() bool { return hosts[1].finds("192.168.77.2") })
	must.Eventually(t, "it is healthy as to its name", func() bool { return g.state().Problem == "" && g.state().Role == announce.RoleActive })
}

// enrolledAs is the folder of an enrolled gateway whose API is unavailable, with the pair key that
// the API gave its customer's gateways before.
func enrolledAs(t *testing.T, id, pairKey string) (setting string) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]any{
		"enrolment.json": map[string]any{
			"gateway_id": id, "account": "ops@example.com", "project_id": "site", "topic": "data", "api": "http://127.0.0.1:9",
			"seed": make([]byte, 32),
		},
		"pair.json": map[string]any{"gateway_id": id, "pair_key": []byte(pairKey)},
	} {
		encoded := must.Get(json.Marshal(content))(t)
		must.Do(t, os.WriteFile(filepath.Join(folder, name), encoded, 0o600))
	}
	return "OUTBOX_DIR=" + folder
}

// TestPairsOfOneLink has two gateways of one customer, one of another and an open one on a
// link, all with one site token, while the API is unavailable. Two of them are a pair, and one follows
// the other when it is killed. Contract 8.15, 10.14.
func TestPairsOfOneLink(t *testing.T) {
	t.Parallel()
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.3/24", "192.168.77.4/24", "192.168.77.5/24", "192.168.77.10/24")
	const token = "SITE_TOKEN=of everybody on this link"
	active := hosts[0].startGateway(token, enrolledAs(t, "gw-one", "the key of one customer"))
	active.becomes(announce.RoleActive, "monitor-gateway.local")
	standby := hosts[1].startGateway(token, enrolledAs(t, "gw-two", "the key of one customer"))
	foreign := hosts[2].startGateway(token, enrolledAs(t, "gw-three", "the key of another customer"))
	open := hosts[3].startGateway(token)
	standby.becomes(announce.RoleStandby, "monitor-gateway-")
	foreign.becomes(announce.RoleConflict, "monitor-gateway-")
	open.becomes(announce.RoleConflict, "monitor-gateway-")
	must.Eventually(t, "the active one knows of its standby", func() bool {
		links := active.state().Links
		return len(links) == 1 && slices.Equal(links[0].Peers, []string{"192.168.77.3"})
	})
	for _, g := range []*gateway{foreign, open} {
		must.Eventually(t, "a stranger says who has the name", func() bool {
			got := g.state()
			return len(got.Links) == 1 && len(got.Links[0].Peers) == 0 && got.Problem == "a gateway of another enrolment, 192.168.77.2, has monitor-gateway.local"
		})
		g.end(syscall.SIGTERM) // it would race the standby for a name that is free
	}
	active.end(syscall.SIGKILL)
	standby.becomes(announce.RoleActive, "monitor-gateway.local")
	must.Eventually(t, "a node finds the standby", func() bool { return hosts[4].finds("192.168.77.3") })
}

// TestFortyInterfaces has twice as many as one socket may join.
func TestFortyInterfaces(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	const links = 40
	for n := range links {
		ours, theirs := fmt.Sprintf("port%d", n), fmt.Sprintf("eth%d", n)
		machine.ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", client.name)
		machine.ip("address", "add", fmt.Sprintf("10.7.%d.2/24", n), "dev", ours)
		client.ip("address", "add", fmt.Sprintf("10.7.%d.10/24", n), "dev", theirs)
		machine.ip("link", "set", ours, "up")
		client.ip("link", "set", theirs, "up")
	}
	g := machine.startGateway()
	g.ready(links)
	for _, n := range []int{0, 19, 20, 21, links - 1} {
		want := fmt.Sprintf("10.7.%d.2", n)
		must.Equal(t, fmt.Sprintf("on link %d it is", n), want,
			must.Get(client.plays(play{Client: "multicast", Name: hostname, Type: dns.TypeA, On: fmt.Sprintf("eth%d", n)}))(t))
	}
}

// TestNeighbourWithIPv6Alone (contract 8.14) calls a gateway from a machine that has no IPv4.
func TestNeighbourWithIPv6Alone(t *testing.T) {
	t.Parallel()
	for title, addresses := range map[string][]string{
		"link-local":                   {"192.168.77.2/24"},
		"of the network":               {"192.168.77.2/24", "fd00:77::2/64"},
		"and the gateway has no other": {""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			machine, client := newHost(t), newHost(t)
			cable(machine, "eth0", "", client, "")
			for _, address := range addresses {
				if address != "" {
					machine.ip("address", "add", address, "dev", "eth0")
				}
			}
			if len(addresses) > 1 {
				client.ip("address", "add", "fd00:77::10/64", "dev", "eth0")
			}
			g := machine.startGateway()
			g.ready(1)
			got := must.Get(client.plays(play{Client: "six", Name: hostname}))(t)
			address := netip.MustParseAddr(got)
			if len(addresses) > 1 && got != "fd00:77::2" {
				t.Errorf("it is %s", got)
			}
			if address.IsLinkLocalUnicast() {
				got += "%25eth0"
			}
			must.Eventually(t, "the gateway answers at "+got, func() bool {
				out, err := client.says(nil, "curl", "--silent", "--max-time", "5", fmt.Sprintf("http://[%s]:%d/health", got, port))
				return err == nil && strings.Contains(out, `"status"`)
			})
		})
	}
}

// TestTwiceInOneNetwork has both interfaces in the same network, as a gateway
// with a cable and WiFi of the same router: it hears itself, and must not take
// itself for another.
func TestTwiceInOneNetwork(t *testing.T) {
	t.Parallel()
	router, machine, client := newSwitch(t), newHost(t), newHost(t)
	router.plug(machine, "eth0", "192.168.77.2/24")
	router.plug(machine, "wlan0", "192.168.77.3/24")
	router.plug(client, "eth0", "192.168.77.10/24")
	g := machine.startGateway()
	g.ready(2)
	must.Equal(t, "alone in its network, it calls itself", "monitor-gateway.local", g.state().Host)
	for _, asker := range []string{"lwip", "esp"} { // the kinds that want an answer for themselves
		got, err := client.plays(play{Client: asker, Name: hostname, Type: dns.TypeA})
		if err != nil || (got != "192.168.77.2" && got != "192.168.77.3") {
			t.Errorf("%s is told %q, %v", asker, got, err)
		}
	}
}

// TestCheck does what a node does, where each of the things is wrong that can be.
func TestCheck(t *testing.T) {
	t.Parallel()
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.10/24")
	node := hosts[1]
	node.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
	// A check has a node's few seconds, which a busy machine may need for itself.
	checked := func(what string, p play, want string) {
		t.Helper()
		p.Client = "check"
		must.Eventually(t, what, func() bool { return strings.HasPrefix(must.Get(node.plays(p))(t), want) })
	}
	checked("nothing is found without a gateway", play{}, "not found")
	g := hosts[0].startGateway()
	g.becomes(announce.RoleActive, "monitor-gateway.local")
	for want, p := range map[string]play{
		"reached":       {Own: []netip.Addr{netip.MustParseAddr("192.168.77.2")}},
		"wrong address": {Own: []netip.Addr{netip.MustParseAddr("192.168.77.10")}},
		"refused":       {Port: 9},
	} {
		checked(fmt.Sprintf("%+v is %s", p, want), p, want)
	}
	node.ip("route", "delete", "224.0.0.0/4") // hashicorp/mdns cannot ask
	checked("it is reached by the name alone", play{}, "reached")
	g.end(syscall.SIGTERM)
	// Whoever has the name is not there.
	rival := hosts[0].playing(play{Client: "rival", Name: hostname, Claimed: netip.MustParseAddr("192.168.77.99")})
	must.Equal(t, "the other device says", "has the name", rival.line())
	checked("nobody is at the address", play{}, "connect: ")
}

// TestGatewayChecksItsName (contract 8.12) has a machine that no longer knows that the address is
// its own, so that no answer reaches it: the gateway says what its nodes meet, and when that is over.
func TestGatewayChecksItsName(t *testing.T) {
	t.Parallel()
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.10/24")
	hosts[0].ip("link", "add", "docker0", "type", "bridge") // without containers
	hosts[0].ip("address", "add", "172.17.0.1/16", "dev", "docker0")
	hosts[0].ip("link", "set", "docker0", "up")
	g := hosts[0].startGateway("NAME_CHECK_EVERY=1s")
	g.becomes(announce.RoleActive, "monitor-gateway.local")
	unfound := func() string { // the reasons that concern the name
		return strings.Join(slices.DeleteFunc(g.health().Reasons, func(r string) bool { return !strings.HasPrefix(r, "name: ") }), " ")
	}
	must.Eventually(t, "it is in order", func() bool { return unfound() == "" })
	route := func(do string) { g.ip("route", do, "local", "192.168.77.2", "dev", "eth0", "table", "local") }
	route("delete")
	must.Eventually(t, "it says that nodes do not find it", func() bool {
		if strings.Contains(unfound(), "docker0") {
			t.Fatalf("it says %+v", g.health())
		}
		return g.health().Status == "degraded" && strings.Contains(unfound(), "eth0: ask by legacy")
	})
	route("add")
	// Not the status: publishing into nothing has made it "degraded" by then, or not yet.
	must.Eventually(t, "it is over", func() bool { return unfound() == "" })
}
