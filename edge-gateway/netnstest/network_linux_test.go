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
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

const hostname = "monitor-gateway.local."

// TestEveryClientFindsIt asks on both links of a gateway in all ways. The two networks know nothing of
// each other and use the same addresses, as two cheap routers do: each answer must leave by the interface
// that the question came by. Contract 8.14.
func TestEveryClientFindsIt(t *testing.T) {
	t.Parallel()
	machine, wired, wireless := newHost(t), newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", wired, "192.168.77.10/24")
	cable(machine, "wlan0", "192.168.77.3/24", wireless, "192.168.77.10/24")
	machine.startGateway().ready(2)
	for address, client := range map[string]*host{"192.168.77.2": wired, "192.168.77.3": wireless} {
		client.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
		// One after the other: they share their host's port.
		t.Run("on the link of "+address, func(t *testing.T) {
			t.Parallel()
			for _, p := range []play{
				{Client: "lwip", Name: hostname, Type: dns.TypeA},
				{Client: "lwip", Name: hostname, Type: dns.TypeANY},
				{Client: "lwip", Name: "Monitor-GATEWAY.Local.", Type: dns.TypeA},
				{Client: "esp", Name: hostname, Type: dns.TypeA},
				{Client: "esp", Name: "MONITOR-gateway.local.", Type: dns.TypeANY},
				{Client: "multicast", Name: hostname, Type: dns.TypeA},
				{Client: "multicast", Name: "monitor-gateway.LOCAL.", Type: dns.TypeANY},
			} {
				if p.Client == "multicast" { // no record is multicast twice in a second (RFC 6762 §6)
					time.Sleep(1100 * time.Millisecond)
				}
				must.Equal(t, fmt.Sprintf("%s asks for %s %s", p.Client, p.Name, dns.TypeToString[p.Type]), address, must.Get(client.plays(p))(t))
			}
			client.ip("address", "add", "10.9.8.7/24", "dev", "eth0") // as on a laptop that has set up a switch
			for _, way := range []discover.Way{discover.Legacy, discover.Unicast, discover.Multicast} {
				must.Equal(t, fmt.Sprintf("doctor, that asks by %s, finds", way), "["+address+"]", must.Get(client.plays(play{Client: "resolve", Way: way}))(t))
			}
			want := fmt.Sprintf(`{"Instance":"monitor-gateway","Host":"monitor-gateway.local",`+
				`"Address":%q,"Port":%d,"Text":["version=1.0"]}`, address, port)
			must.Equal(t, "hashicorp/mdns", want, must.Get(client.plays(play{Client: "browse"}))(t))
			for name, found := range map[string]func(t *testing.T, client *host, address string){
				"dig": foundByDig, "python3-zeroconf": foundByZeroconf, "Avahi": foundByAvahi,
			} {
				t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
					found(t, client, address)
				})
			}
		})
	}
}

// foundByDig asks the gateway's address: dig 9.18 connects its socket, so that it
// hears nobody who answers what it sent to the group.
func foundByDig(t *testing.T, client *host, address string) {
	t.Helper()
	dig := need(t, "dig")
	for question, want := range map[string]string{
		"monitor-gateway.local A":              address,
		"Monitor-Gateway.LOCAL A":              address,
		"_http._tcp.local PTR":                 "monitor-gateway._http._tcp.local.",
		"monitor-gateway._http._tcp.local SRV": fmt.Sprintf("0 0 %d monitor-gateway.local.", port),
		"monitor-gateway._http._tcp.local TXT": `"version=1.0"`,
		"_services._dns-sd._udp.local PTR":     "_http._tcp.local.",
	} {
		arguments := append([]string{"@" + address, "-p", "5353", "+short", "+notcp", "+time=5", "+tries=3"}, strings.Fields(question)...)
		must.Equal(t, "dig "+question, want, must.Get(client.says(nil, dig, arguments...))(t))
	}
}

func foundByAvahi(t *testing.T, client *host, address string) {
	t.Helper()
	resolve, browse := need(t, "avahi-resolve"), need(t, "avahi-browse")
	environ := startAvahi(t, client, "client")
	var got string
	must.Eventually(t, "Avahi resolves", func() bool {
		out, err := client.says(environ, resolve, "-4", "-n", "monitor-gateway.local")
		got = strings.Join(strings.Fields(out), " ")
		return err == nil && got != ""
	})
	must.Equal(t, "avahi-resolve", "monitor-gateway.local "+address, got)
	out, err := client.says(environ, browse, "--resolve", "--terminate", "--parsable", "_http._tcp")
	want := fmt.Sprintf(`=;eth0;IPv4;monitor-gateway;Web Site;local;monitor-gateway.local;%s;%d;"version=1.0"`, address, port)
	must.Hold(t, err == nil && slices.Contains(strings.Split(out, "\n"), want),
		"avahi-browse: %v\n%s\nwant %s", err, out, want)
}

func foundByZeroconf(t *testing.T, client *host, address string) {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := client.says(nil, python, "-c", "import zeroconf"); err != nil {
		tooltest.Missing(t, "python3-zeroconf")
	}
	got, err := client.says(nil, python, "-c", `
import zeroconf
z = zeroconf.Zeroconf(ip_version=zeroconf.IPVersion.V4Only)
i = z.get_service_info("_http._tcp.local.", "monitor-gateway._http._tcp.local.", 20000)
print(i.server, i.port, i.parsed_addresses(zeroconf.IPVersion.V4Only), i.properties)
z.close()`)
	want := fmt.Sprintf("monitor-gateway.local. %d ['%s'] {b'version': b'1.0'}", port, address)
	must.Hold(t, err == nil && got == want, "%q, %v, want %q", got, err, want)
}

// TestAddressesComeAndChange starts a gateway that has no network at all.
func TestAddressesComeAndChange(t *testing.T) {
	t.Parallel()
	machine, client := newHost(t), newHost(t)
	g := machine.startGateway()
	must.Eventually(t, "the gateway serves without a network", func() bool { return g.state().Host == "monitor-gateway.local" })
	found := func(what, want string) {
		t.Helper()
		must.Eventually(t, what, func() bool { return client.finds(want) })
	}
	cable(machine, "eth0", "", client, "192.168.77.10/24")
	must.Hold(t, !client.finds("192.168.77.2"), "found before it had an address")
	machine.ip("address", "add", "192.168.77.2/24", "dev", "eth0") // late DHCP
	found("found at its first address", "192.168.77.2")
	machine.ip("address", "delete", "192.168.77.2/24", "dev", "eth0")
	machine.ip("address", "add", "192.168.77.3/24", "dev", "eth0")
	found("found at its next address", "192.168.77.3")
	machine.ip("link", "set", "eth0", "down")
	machine.ip("link", "set", "eth0", "up")
	found("found after the cable was out", "192.168.77.3")
	// The same from afar: the switch loses power, the address stays.
	client.ip("link", "set", "eth0", "down")
	must.Eventually(t, "a link without a carrier is not announced on", func() bool { return len(g.state().Links) == 0 })
	for range 20 {
		client.ip("link", "set", "eth0", "up")
		client.ip("link", "set", "eth0", "down")
	}
	client.ip("link", "set", "eth0", "up")
	found("found after the switch was off again and again", "192.168.77.3")
	g.becomes(announce.RoleActive, "monitor-gateway.local")
	files := openFiles(t, g)
	must.Hold(t, files <= 64, "%d files are open", files)
	machine.ip("link", "delete", "eth0")
	cable(machine, "eth1", "192.168.77.4/24", client, "192.168.77.10/24")
	found("found by another adapter", "192.168.77.4")
}

// openFiles counts those of the gateway's process.
func openFiles(t *testing.T, g *gateway) (n int) {
	t.Helper()
	out := must.Get(g.says(nil, "sh", "-c", fmt.Sprintf("ls /proc/%d/fd | wc -l", g.process.Process.Pid)))(t)
	must.Get(fmt.Sscan(out, &n))(t)
	return n
}

// wired is a machine with an address, and a client at the other end of its cable.
func wired(t *testing.T) (machine, client *host) {
	t.Helper()
	machine, client = newHost(t), newHost(t)
	cable(machine, "eth0", "192.168.77.2/24", client, "192.168.77.10/24")
	return machine, client
}

// TestGoodbye holds that everybody is told when one of two addresses goes, and when the gateway is stopped.
func TestGoodbye(t *testing.T) {
	t.Parallel()
	machine, client := wired(t)
	machine.ip("address", "add", "192.168.78.2/24", "dev", "eth0")
	g := machine.startGateway()
	must.Eventually(t, "both addresses are announced", func() bool {
		links := g.state().Links
		return len(links) == 1 && links[0].Phase == "ready" && strings.HasPrefix(strings.Join(links[0].Addresses, " "), "192.168.77.2 192.168.78.2")
	})
	told := func(want string, goes func()) {
		t.Helper()
		listener := client.playing(play{Client: "listener", Name: hostname})
		must.Equal(t, "the listener says", "listening", listener.line())
		goes()
		must.Equal(t, "the listener says", "goodbye "+want, listener.line())
	}
	told("192.168.78.2", func() { machine.ip("address", "delete", "192.168.78.2/24", "dev", "eth0") })
	told("192.168.77.2", func() { g.end(syscall.SIGTERM) })
	must.Hold(t, !client.finds("192.168.77.2"), "still found")
}

// TestFoundOnceItCanBe has a machine where the gateway cannot be announced for a time: it
// serves, says why it is not found, and is found as soon as it can be.
func TestFoundOnceItCanBe(t *testing.T) {
	t.Parallel()
	for problem, hinder := range map[string]func(machine *host) (end func()){
		"join the multicast group": func(machine *host) (end func()) {
			allow := func(memberships int) {
				line := fmt.Sprintf("echo %d > /proc/sys/net/ipv4/igmp_max_memberships", memberships)
				if _, err := machine.says(nil, "sh", "-c", line); err != nil {
					tooltest.Unable(machine.t, "multicast cannot be refused here: %v", err)
				}
			}
			allow(0)
			return func() { allow(20) }
		},
		"address already in use": func(machine *host) (end func()) {
			other := machine.playing(play{Client: "selfish"})
			must.Equal(machine.t, "the other program says", "listening", other.line())
			return other.end
		},
	} {
		t.Run(problem, func(t *testing.T) {
			t.Parallel()
			machine, client := wired(t)
			end := hinder(machine)
			g := machine.startGateway()
			must.Eventually(t, "the gateway serves and says what is wrong", func() bool {
				links := g.state().Links
				return len(links) == 1 && links[0].Phase == "waiting" && strings.Contains(links[0].Error, problem) && g.state().Error == links[0].Error
			})
			end()
			g.ready(1)
			must.Equal(t, "still at fault", "", g.state().Links[0].Error)
			for _, asker := range []string{"lwip", "multicast"} {
				must.Equal(t, asker+" finds it at", "192.168.77.2", must.Get(client.plays(play{Client: asker, Name: hostname, Type: dns.TypeA}))(t))
			}
		})
	}
}

// TestBesideAvahi runs the gateway on a machine that has a responder of its own already, as Raspberry Pi OS does: they
// share the port, and neither may take the other's names.
func TestBesideAvahi(t *testing.T) {
	t.Parallel()
	resolve := need(t, "avahi-resolve")
	send := need(t, "dbus-send")
	for title, c := range map[string]struct {
		name  string
		later bool // it starts after the gateway
	}{
		"that was there before": {name: "raspberrypi"},
		"that comes later":      {name: "raspberrypi", later: true},
		"with the same name":    {name: "monitor-gateway"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			machine, client := wired(t)
			var environ []string
			start := func() {
				environ = startAvahi(t, machine, c.name)
				must.Eventually(t, "Avahi has its name", func() bool {
					state, err := machine.says(environ, send, "--system", "--print-reply=literal",
						"--dest=org.freedesktop.Avahi", "/", "org.freedesktop.Avahi.Server.GetState")
					return err == nil && strings.TrimSpace(state) == "int32 2" // AVAHI_SERVER_RUNNING
				})
			}
			if !c.later {
				start()
			}
			g := machine.startGateway()
			g.ready(1)
			if c.later {
				start()
			}
			for _, name := range []string{hostname, c.name + ".local."} {
				must.Eventually(t, name+" is found", func() bool {
					got, err := client.plays(play{Client: "multicast", Name: name, Type: dns.TypeA, Patience: briefly})
					return err == nil && got == "192.168.77.2"
				})
			}
			must.Equal(t, "the gateway is called", "monitor-gateway.local", g.state().Host)
			got, err := g.says(environ, send, "--system", "--print-reply=literal",
				"--dest=org.freedesktop.Avahi", "/", "org.freedesktop.Avahi.Server.GetHostName")
			must.Hold(t, err == nil && strings.TrimSpace(got) == c.name, "Avahi is called %q, %v, want %s", got, err, c.name)
			out, err := g.says(environ, resolve, "-4", "-n", "monitor-gateway.local")
			if got := strings.Join(strings.Fields(out), " "); err != nil || got != "monitor-gateway.local 192.168.77.2" {
				t.Errorf("avahi-resolve on the gateway's machine: %q, %v", got, err)
			}
		})
	}
}

// startAvahi runs a daemon that calls its host so, with a bus of its own, and returns the environment of its clients.
func startAvahi(t *testing.T, on *host, name string) []string {
	t.Helper()
	daemon, bus := need(t, "avahi-daemon"), need(t, "dbus-daemon")
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	address := "unix:path=" + filepath.Join(folder, "bus")
	environ := []string{"DBUS_SYSTEM_BUS_ADDRESS=" + address}
	busConfig := write("bus.conf", `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
		"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
		<busconfig><listen>`+address+`</listen><auth>EXTERNAL</auth>
		<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>`)
	avahiConfig := write("avahi.conf", "[server]\nhost-name="+name+"\nuse-ipv6=no\nenable-dbus=yes\n[publish]\n[reflector]\n[rlimits]\n")
	start := func(program string, arguments ...string) {
		c := on.command(t.Context(), environ, program, arguments...)
		must.Do(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			_ = c.Wait()
		})
	}
	start(bus, "--nofork", "--nopidfile", "--config-file="+busConfig)
	must.Eventually(t, "the bus listens", func() bool {
		_, err := os.Stat(filepath.Join(folder, "bus"))
		return err == nil
	})
	// The folder of its pid is the machine's: hide it by one of its own.
	start("unshare", "--mount", "sh", "-c",
		`mkdir -p /run/avahi-daemon && mount -t tmpfs none /run/avahi-daemon && exec "$0" --no-drop-root --no-chroot --no-rlimits -f "$1"`,
		daemon, avahiConfig)
	return environ
}

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
		must.Do(t, os.WriteFile(filepath.Join(folder, name), must.Get(json.Marshal(content))(t), 0o600))
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
		must.Equal(t, fmt.Sprintf("on link %d it is", n), fmt.Sprintf("10.7.%d.2", n),
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
			must.Hold(t, len(addresses) <= 1 || got == "fd00:77::2", "it is %s", got)
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

// TestTwiceInOneNetwork has both interfaces in the same network, as a gateway with a cable and WiFi of the same router:
// it hears itself, and must not take itself for another.
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
		must.Hold(t, err == nil && (got == "192.168.77.2" || got == "192.168.77.3"), "%s is told %q, %v", asker, got, err)
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
	checked("nobody is at the address", play{}, "eth0: monitor-gateway.local is 192.168.77.99: connect: ")
}

// TestGatewayChecksItsName (contract 8.12) has a machine that no longer knows that the address is
// its own, so that no answer reaches it: the gateway says what its nodes meet, and when that is over. Without an IPv4
// address no node finds it.
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
	g.ip("link", "delete", "docker0")
	g.ip("address", "delete", "192.168.77.2/24", "dev", "eth0")
	must.Eventually(t, "it says that it has no address", func() bool { return strings.Contains(unfound(), "no interface with multicast has an IPv4 address") })
}
