package multicast

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestHardwareIsFirst(t *testing.T) {
	t.Parallel()
	var interfaces []net.Interface
	for index, name := range []string{"veth3", "lo", "eth1", "docker0", "eth0"} {
		interfaces = append(interfaces, net.Interface{Index: 10 - index, Name: name})
	}
	var names []string
	for _, i := range sortedBy(interfaces, func(name string) bool { return strings.HasPrefix(name, "eth") }) {
		names = append(names, i.Name)
	}
	if want := []string{"eth0", "eth1", "docker0", "lo", "veth3"}; !slices.Equal(names, want) {
		t.Errorf("the order is %v, want %v", names, want)
	}
	if len(Sorted(interfaces)) != len(interfaces) {
		t.Error("some are left out")
	}
}

func TestNear(t *testing.T) {
	t.Parallel()
	prefixes := []netip.Prefix{netip.MustParsePrefix("192.168.1.20/24"), netip.MustParsePrefix("fd00:1::20/64")}
	for address, want := range map[string]bool{
		"192.168.1.7": true, "192.168.2.7": false, "169.254.1.1": false,
		"fd00:1::7": true, "fd00:1::7%eth0": true, "fd00:2::7": false, "fe80::7": true, "fe80::7%eth0": true,
	} {
		if got := Near(prefixes, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is near: %t", address, got)
		}
	}
}
