// Package multicast is the common part of announce and discover: the gateway's name, the
// port and groups of mDNS, and an interface's addresses.
package multicast

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Name is the gateway's name, of its host and of its service.
	Name = "monitor-gateway"
	// Port is the port of mDNS. A query from another port comes from a resolver without
	// mDNS (RFC 6762 §6.7).
	Port = 5353
	// MaxMessage is the largest message, in bytes, that mDNS knows (§17).
	MaxMessage = 9000
	// Hops is the hop limit of every packet: it must not leave the link, and 255 on
	// arrival shows that it came from there (§11).
	Hops = 255
)

// Group is the IPv4 group of mDNS with its port.
func Group() *net.UDPAddr { return &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: Port} }

// Group6 is the IPv6 group of mDNS with its port.
func Group6() *net.UDPAddr { return &net.UDPAddr{IP: net.ParseIP("ff02::fb"), Port: Port} }

// Prefixes are an interface's IPv4 addresses with the lengths of their networks, in the
// system's order: by the first the machine asks others.
func Prefixes(i net.Interface) []netip.Prefix {
	return slices.DeleteFunc(prefixes(i), func(p netip.Prefix) bool { return !p.Addr().Is4() })
}

// Prefixes6 are an interface's IPv6 addresses to announce: like Avahi, a link-local one only
// if there is no other, because programs that do not know its interface cannot use it.
func Prefixes6(i net.Interface) []netip.Prefix {
	all := slices.DeleteFunc(prefixes(i), func(p netip.Prefix) bool { return !p.Addr().Is6() })
	if wide := slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() }); len(wide) > 0 {
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
	return found
}

// Near reports whether an address is in one of these networks, or is link-local.
func Near(prefixes []netip.Prefix, address netip.Addr) bool {
	if address.Is6() && address.IsLinkLocalUnicast() {
		return true
	}
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address.WithZone("")) })
}

// Interfaces lists the interfaces that can do multicast and are connected: a bridge without
// containers is not.
func Interfaces() ([]net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return slices.DeleteFunc(all, func(i net.Interface) bool {
		const needed = net.FlagUp | net.FlagRunning | net.FlagMulticast
		return i.Flags&needed != needed || i.Flags&net.FlagLoopback != 0
	}), nil
}

// Listen opens the port of mDNS at an address, shared with others of the machine.
func Listen(ctx context.Context, network, address string) (net.PacketConn, error) {
	listening := net.ListenConfig{Control: sharePort}
	conn, err := listening.ListenPacket(ctx, network, net.JoinHostPort(address, strconv.Itoa(Port)))
	if err != nil {
		return nil, fmt.Errorf("open the port of mDNS: %w", err)
	}
	return conn, nil
}

// Linux's numbers of socket options that the other systems do not have.
const (
	ipMulticastAll   = 49
	ipv6MulticastAll = 29
)

// sharePort shares port 5353 with other programs of the machine, as the Control of a
// [net.ListenConfig]. On Linux it avoids SO_REUSEPORT, which would give each unicast packet
// to one of the sockets at random, and keeps the socket from hearing the groups that other
// sockets of the machine have joined.
func sharePort(network, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		switch {
		case runtime.GOOS != "linux":
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		case network == "udp6":
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, ipv6MulticastAll, 0) // not before Linux 4.20; receivers look at the interface, too
		default:
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, ipMulticastAll, 0)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("share the port: %w", err)
	}
	return nil
}
