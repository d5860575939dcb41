package netnstest

import (
	"testing"

	"github.com/miekg/dns"

	"coldaisle.dev/shared/must"
)

// askers are small devices, of both kinds that want an answer for themselves.
func askers() []string { return []string{"lwip", "esp"} }

// TestTwoNetworksWithTheSameNumbers has two networks that know nothing of each
// other and use the same addresses, as two cheap routers do: each answer must
// leave by the interface that the question came by.
func TestTwoNetworksWithTheSameNumbers(t *testing.T) {
	t.Parallel()
	machine, wired, wireless := newHost(t), newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", wired, "192.168.77.10/24")
	cable(machine, "wlan0", "192.168.77.3/24", wireless, "192.168.77.10/24")
	g := machine.startGateway()
	g.ready(2)
	for want, client := range map[string]*host{"192.168.77.2": wired, "192.168.77.3": wireless} {
		for _, asker := range askers() {
			must.Equal(t, asker+" is told", want, must.Get(client.plays(play{Client: asker, Name: hostname, Type: dns.TypeA}))(t))
		}
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
	for _, asker := range askers() {
		got, err := client.plays(play{Client: asker, Name: hostname, Type: dns.TypeA})
		if err != nil || (got != "192.168.77.2" && got != "192.168.77.3") {
			t.Errorf("%s is told %q, %v", asker, got, err)
		}
	}
}
