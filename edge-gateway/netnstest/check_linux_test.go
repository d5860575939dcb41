package netnstest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/shared/must"
)

// TestCheck does what a node does, where each of the things is wrong that can be.
func TestCheck(t *testing.T) {
	t.Parallel()
	hosts := bridged(t, "192.168.77.2/24", "192.168.77.10/24")
	node := hosts[1]
	node.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
	check := func(p play) string {
		t.Helper()
		p.Client = "check"
		return must.Get(node.plays(p))(t)
	}
	// A check has a node's few seconds, which a busy machine may need for itself.
	checked := func(what string, p play, want string) {
		t.Helper()
		must.Eventually(t, what, func() bool { return strings.HasPrefix(check(p), want) })
	}
	checked("nothing is found without a gateway", play{}, "not found")
	g := hosts[0].startGateway()
	g.becomes(announce.RoleActive, "monitor-gateway.local")
	addresses := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	for want, p := range map[string]play{
		"reached":       {Own: addresses("192.168.77.2")},
		"wrong address": {Own: addresses("192.168.77.10")},
		"refused":       {Port: 9},
	} {
		checked(fmt.Sprintf("%+v is %s", p, want), p, want)
	}
	node.ip("route", "delete", "224.0.0.0/4") // hashicorp/mdns cannot ask
	checked("it is reached by the name alone", play{}, "reached")
	g.end(syscall.SIGTERM)
	// Whoever has the name is not there.
	said, _ := hosts[0].playing(play{Client: "rival", Name: hostname, Claimed: netip.MustParseAddr("192.168.77.99")})
	must.Equal(t, "the other device says", "has the name", said())
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
