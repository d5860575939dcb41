package netnstest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"coldaisle.dev/shared/must"
)

// TestBesideAvahi runs the gateway on a machine that has a responder of its own
// already, as Raspberry Pi OS does: they share the port, and neither may take
// the other's names.
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
			if err != nil || strings.TrimSpace(got) != c.name {
				t.Errorf("Avahi is called %q, %v, want %s", got, err, c.name)
			}
			out, err := g.says(environ, resolve, "-4", "-n", "monitor-gateway.local")
			if got := strings.Join(strings.Fields(out), " "); err != nil || got != "monitor-gateway.local 192.168.77.2" {
				t.Errorf("avahi-resolve on the gateway's machine: %q, %v", got, err)
			}
		})
	}
}

// startAvahi runs a daemon that calls its host so, with a bus of its own, and
// returns the environment of its clients.
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
