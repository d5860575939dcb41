package multicast

import (
	"net/netip"
	"testing"

	"coldaisle.dev/shared/must"
)

func TestNear(t *testing.T) {
	t.Parallel()
	prefixes := []netip.Prefix{netip.MustParsePrefix("192.168.1.20/24"), netip.MustParsePrefix("fd00:1::20/64")}
	for address, want := range map[string]bool{
		"192.168.1.7": true, "192.168.2.7": false, "169.254.1.1": false,
		"fd00:1::7": true, "fd00:1::7%eth0": true, "fd00:2::7": false, "fe80::7": true, "fe80::7%eth0": true,
	} {
		must.Equal(t, address+" is near", want, Near(prefixes, netip.MustParseAddr(address)))
	}
}
