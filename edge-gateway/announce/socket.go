package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"coldaisle.dev/edge-gateway/multicast"
)

// sockets are the sockets of port 5353 on every link, shared with other responders of the machine.
// Each link has its own, because Linux lets a socket join 20 groups
// (igmp_max_memberships). All methods belong to one goroutine.
type sockets struct {
	received chan packet
	stop     chan struct{}
	readers  sync.WaitGroup
	open     map[int]*linkSockets // by interface
}

// linkSockets are the sockets of one link.
type linkSockets struct {
	link    Link
	sockets []*socket   // IPv4 before IPv6; none if they could not be opened
	err     error       // of the last attempt to open or to send
	broken  atomic.Bool // a reader has ended
}

// socket is one of IPv4 or IPv6. read returns a packet's length, the interface and the
// address that it came to, and its sender; write sends by an interface.
type socket struct {
	groupConn

	group *net.UDPAddr
	read  func(buffer []byte) (n, link int, to net.IP, from net.Addr, err error)
	write func(message []byte, link int, to net.Addr) error
}

// groupConn is what a connection of package ipv4 and one of package ipv6 have in common.
type groupConn interface {
	SetMulticastInterface(i *net.Interface) error
	SetMulticastLoopback(on bool) error
	JoinGroup(i *net.Interface, group net.Addr) error
	Close() error
}

// close closes all sockets, which ends their readers, and waits for these.
func (s *sockets) close() {
	close(s.stop)
	for _, o := range s.open {
		o.close()
	}
	s.readers.Wait()
}

func (o *linkSockets) close() {
	for _, opened := range o.sockets {
		_ = opened.Close()
	}
	o.sockets = nil
}

func (o *linkSockets) usable() bool { return len(o.sockets) > 0 }

// links lists the machine's interfaces, opens sockets on new ones and closes those of
// interfaces that are gone. A later call retries the ones that could not be opened. An
// interface without a carrier is left out, so that it starts anew when its cable is
// plugged in again, perhaps into another network (§8).
func (s *sockets) links(ctx context.Context) []Link {
	interfaces, err := multicast.Interfaces()
	if err != nil {
		return nil
	}
	present := map[int]bool{}
	var usable []Link
	for _, i := range interfaces {
		l := Link{
			Index: i.Index, Name: i.Name, Hardware: i.HardwareAddr,
			Prefixes: slices.Concat(multicast.Prefixes(i), multicast.Prefixes6(i)),
		}
		if len(l.Prefixes) == 0 {
			continue
		}
		present[i.Index] = true
		o := s.prepare(ctx, s.open[i.Index], l)
		s.open[i.Index] = o
		if o.usable() {
			usable = append(usable, l)
		}
	}
	for index, o := range s.open {
		if !present[index] {
			o.close()
			delete(s.open, index)
		}
	}
	return usable
}

// prepare opens the sockets of a link if it has none or its addresses have changed, because a
// membership may not outlive the address that it was made with.
func (s *sockets) prepare(ctx context.Context, before *linkSockets, l Link) *linkSockets {
	if before != nil {
		if before.usable() && !before.broken.Load() && slices.Equal(before.link.Prefixes, l.Prefixes) {
			return before
		}
		before.close()
	}
	o := &linkSockets{link: l}
	i := &net.Interface{Index: l.Index, Name: l.Name}
	// Nodes ask by IPv4: a link without it is not served by IPv6 alone.
	for _, family := range []struct {
		is               func(netip.Addr) bool
		network, address string
		over             func(net.PacketConn) (*socket, error)
	}{{netip.Addr.Is4, "udp4", "0.0.0.0", over4}, {netip.Addr.Is6, "udp6", "::", over6}} {
		if !slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return family.is(p.Addr()) }) {
			continue
		}
		conn, err := multicast.Listen(ctx, family.network, family.address)
		if err != nil {
			o.err = err
			break
		}
		opened, err := family.over(conn)
		if err = errors.Join(err, opened.join(i)); err != nil {
			_ = conn.Close()
			o.err = err
			break
		}
		o.sockets = append(o.sockets, opened)
		s.readers.Go(func() { s.receive(o, opened) })
	}
	if o.usable() {
		o.err = nil
	}
	return o
}

// over4 returns the socket of IPv4 over a connection.
func over4(conn net.PacketConn) (*socket, error) {
	p := ipv4.NewPacketConn(conn)
	_ = p.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true)
	return &socket{
		groupConn: p, group: multicast.Group(),
		read: func(buffer []byte) (n, link int, to net.IP, from net.Addr, err error) {
			n, control, from, err := p.ReadFrom(buffer)
			if control != nil {
				link, to = control.IfIndex, control.Dst
			}
			return n, link, to, from, err //nolint:wrapcheck // it ends the reader
		},
		write: func(message []byte, link int, to net.Addr) error {
			_, err := p.WriteTo(message, &ipv4.ControlMessage{IfIndex: link}, to)
			return err //nolint:wrapcheck // send does
		},
	}, errors.Join(p.SetMulticastTTL(multicast.Hops), p.SetTTL(multicast.Hops))
}

// over6 returns the socket of IPv6 over a connection.
func over6(conn net.PacketConn) (*socket, error) {
	p := ipv6.NewPacketConn(conn)
	_ = p.SetControlMessage(ipv6.FlagInterface|ipv6.FlagDst, true)
	return &socket{
		groupConn: p, group: multicast.Group6(),
		read: func(buffer []byte) (n, link int, to net.IP, from net.Addr, err error) {
			n, control, from, err := p.ReadFrom(buffer)
			if control != nil {
				link, to = control.IfIndex, control.Dst
			}
			return n, link, to, from, err //nolint:wrapcheck // it ends the reader
		},
		write: func(message []byte, link int, to net.Addr) error {
			_, err := p.WriteTo(message, &ipv6.ControlMessage{IfIndex: link}, to)
			return err //nolint:wrapcheck // send does
		},
	}, errors.Join(p.SetMulticastHopLimit(multicast.Hops), p.SetHopLimit(multicast.Hops))
}

// join joins the group on an interface. Others on this machine hear what is sent there.
func (s *socket) join(i *net.Interface) error {
	if err := errors.Join(s.SetMulticastInterface(i), s.SetMulticastLoopback(true), s.JoinGroup(i, s.group)); err != nil {
		return fmt.Errorf("join the multicast group: %w", err)
	}
	return nil
}

// receive passes packets on until its socket is closed.
func (s *sockets) receive(o *linkSockets, from *socket) {
	buffer := make([]byte, multicast.MaxMessage+1)
	own := o.link.Index
	for {
		n, link, to, sender, err := from.read(buffer)
		if err != nil {
			o.broken.Store(true)
			return
		}
		udp, ok := sender.(*net.UDPAddr)
		if !ok || n > multicast.MaxMessage {
			continue
		}
		address := udp.AddrPort()
		p := packet{data: slices.Clone(buffer[:n]), link: own, from: netip.AddrPortFrom(address.Addr().Unmap(), address.Port())}
		if address, ok := netip.AddrFromSlice(to); ok {
			p.to = address.Unmap()
		}
		if link != 0 && link != own {
			if p.to.IsMulticast() {
				continue // the socket of that link receives it too
			}
			p.link = link // a unicast packet may reach the socket of another link
		}
		select {
		case s.received <- p:
		case <-s.stop:
			return
		}
	}
}

// send implements the responder's [send]. Multicast goes by IPv4 and IPv6. An answer leaves by
// the interface of the question, even if two interfaces have networks with the same addresses.
func (s *sockets) send(link int, to netip.AddrPort, message []byte) bool {
	o := s.open[link]
	if o == nil || !o.usable() {
		return false
	}
	if to.IsValid() {
		n := slices.IndexFunc(o.sockets, func(s *socket) bool { return (s.group.IP.To4() == nil) == to.Addr().Is6() })
		if n < 0 {
			return false
		}
		o.err = o.sockets[n].write(message, link, net.UDPAddrFromAddrPort(to))
	} else {
		o.err = o.sockets[0].write(message, link, o.sockets[0].group)
		for _, other := range o.sockets[1:] {
			_ = other.write(message, link, other.group) // fails for a second while an address is new
		}
	}
	if o.err != nil {
		o.err = fmt.Errorf("send: %w", o.err)
	}
	return o.err == nil
}
