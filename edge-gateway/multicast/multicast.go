// Package multicast is what the two sides of mDNS share: the port, the group,
// and an interface's addresses.
package multicast

import (
	"net"
	"net/netip"
	"slices"
)

const (
	// Port is that of mDNS. A query from another one comes from a resolver that
	// knows nothing of mDNS (RFC 6762 §6.7).
	Port = 5353
	// MaxMessage is the largest message, in bytes, that mDNS knows (§17).
	MaxMessage = 9000
	// Hops of every packet: it must not leave the link, and 255 shows that it came
	// from there (§11).
	Hops = 255
)

// Group is the IPv4 group of mDNS with its port.
func Group() *net.UDPAddr { return &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: Port} }

// Prefixes are an interface's IPv4 addresses with the lengths of their networks,
// sorted.
func Prefixes(i net.Interface) []netip.Prefix {
	addresses, err := i.Addrs()
	if err != nil {
		return nil
	}
	var found []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return found
}
