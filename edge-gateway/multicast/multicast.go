// Package multicast is what the two sides of mDNS share: the port, the group,
// and an interface's addresses.
package multicast

import (
	"cmp"
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

// Group6 is the IPv6 group of mDNS with its port.
func Group6() *net.UDPAddr { return &net.UDPAddr{IP: net.ParseIP("ff02::fb"), Port: Port} }

// Prefixes are an interface's IPv4 addresses with the lengths of their networks,
// sorted.
func Prefixes(i net.Interface) []netip.Prefix {
	return slices.DeleteFunc(prefixes(i), func(p netip.Prefix) bool { return !p.Addr().Is4() })
}

// Prefixes6 are an interface's IPv6 addresses that are worth telling, sorted: a
// link-local one only where there is no other, as Avahi does, because programs
// that do not know its interface cannot call it.
func Prefixes6(i net.Interface) []netip.Prefix {
	all := slices.DeleteFunc(prefixes(i), func(p netip.Prefix) bool { return !p.Addr().Is6() })
	wide := slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() })
	if len(wide) > 0 {
		return wide
	}
	return all
}

func prefixes(i net.Interface) []netip.Prefix {
	addresses, err := i.Addrs()
	if err != nil {
		return nil
	}
	var found []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return found
}

// Near reports whether an address is of one of these networks, or of the link
// whatever its networks are.
func Near(prefixes []netip.Prefix, address netip.Addr) bool {
	if address.Is6() && address.IsLinkLocalUnicast() {
		return true
	}
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address.WithZone("")) })
}

// Sorted are interfaces with those of hardware first: containers and tunnels may
// be many, and no node is behind them.
func Sorted(interfaces []net.Interface) []net.Interface { return sortedBy(interfaces, physical) }

func sortedBy(interfaces []net.Interface, physical func(name string) bool) []net.Interface {
	virtual := make(map[int]int, len(interfaces))
	for _, i := range interfaces {
		if !physical(i.Name) {
			virtual[i.Index] = 1
		}
	}
	return slices.SortedFunc(slices.Values(interfaces), func(a, b net.Interface) int {
		return cmp.Or(cmp.Compare(virtual[a.Index], virtual[b.Index]), cmp.Compare(a.Index, b.Index))
	})
}
