package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"coldaisle.dev/edge-gateway/multicast"
)

// maxLinks bounds the interfaces that are served, those of hardware first: each
// has a socket for IPv4 and one for IPv6.
const maxLinks = 128

// sockets are port 5353 on every link, shared with other responders of the machine.
// Each link has its own, because Linux lets a socket join 20 groups
// (igmp_max_memberships). All methods belong to one goroutine.
type sockets struct {
	clock    func() time.Time
	received chan packet
	stop     chan struct{}
	readers  sync.WaitGroup
	open     map[int]*linkSockets // by interface
}

// linkSockets are those of one link.
type linkSockets struct {
	link   Link
	usable bool
	fault  string
	retry  time.Time // not before, after a fault
	by4    *ipv4.PacketConn
	by6    *ipv6.PacketConn
	broken atomic.Bool // a reader has ended
}

func newSockets(clock func() time.Time) *sockets {
	return &sockets{clock: clock, received: make(chan packet), stop: make(chan struct{}), open: map[int]*linkSockets{}}
}

// close closes all sockets, which ends the readers, and waits for these.
func (s *sockets) close() {
	close(s.stop)
	for _, o := range s.open {
		o.close()
	}
	s.readers.Wait()
}

func (o *linkSockets) close() {
	if o.by4 != nil {
		_ = o.by4.Close()
	}
	if o.by6 != nil {
		_ = o.by6.Close()
	}
	o.by4, o.by6, o.usable = nil, nil, false
}

// links looks at the machine's interfaces, opens sockets on those that are new and
// closes those of the others. Those that cannot be opened are tried again by a later
// call. One whose cable is out is not among them: when it is plugged in again,
// perhaps into another network, it begins anew (§8).
func (s *sockets) links(ctx context.Context) []Link {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	present := map[int]bool{}
	var usable []Link
	for _, i := range multicast.Sorted(interfaces) {
		const needed = net.FlagUp | net.FlagRunning | net.FlagMulticast
		if i.Flags&needed != needed || i.Flags&net.FlagLoopback != 0 || len(present) == maxLinks {
			continue
		}
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
		if o.usable {
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

// prepare opens the sockets of a link when it has none, or other addresses than
// before: a membership may not outlive the address that it was made with.
func (s *sockets) prepare(ctx context.Context, before *linkSockets, l Link) *linkSockets {
	if before != nil {
		fine := before.usable && !before.broken.Load()
		tooSoon := !before.usable && s.clock().Before(before.retry)
		if (fine || tooSoon) && slices.Equal(before.link.Prefixes, l.Prefixes) {
			return before
		}
		before.close()
	}
	o := &linkSockets{link: l}
	i := &net.Interface{Index: l.Index, Name: l.Name}
	has := func(is func(netip.Addr) bool) bool {
		return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return is(p.Addr()) })
	}
	var err4, err6 error
	if has(netip.Addr.Is4) {
		o.by4, err4 = open4(ctx, i)
	}
	if has(netip.Addr.Is6) {
		o.by6, err6 = open6(ctx, i)
	}
	// Nodes ask by IPv4: a link that cannot do that is not served by IPv6 alone.
	if err := errors.Join(err4, err6); err4 != nil || (err != nil && o.by4 == nil) {
		o.close()
		o.note(err)
		o.retry = s.clock().Add(retryOpenAfter)
		return o
	}
	o.usable = true
	if next := o.by4; next != nil {
		s.readers.Go(func() { s.receive(o, reader4(next)) })
	}
	if next := o.by6; next != nil {
		s.readers.Go(func() { s.receive(o, reader6(next)) })
	}
	return o
}

func open4(ctx context.Context, i *net.Interface) (*ipv4.PacketConn, error) {
	conn, err := listen(ctx, "udp4", "0.0.0.0")
	if err != nil {
		return nil, err
	}
	p := ipv4.NewPacketConn(conn)
	err = firstOf(
		step("multicast TTL", p.SetMulticastTTL(multicast.Hops)),
		step("TTL", p.SetTTL(multicast.Hops)),
		step("multicast loopback", p.SetMulticastLoopback(true)), // others on this machine listen too
		step("multicast interface", p.SetMulticastInterface(i)),
		step("join the multicast group", p.JoinGroup(i, multicast.Group())),
	)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	// Windows cannot tell where a packet came from; the socket's link does then.
	_ = p.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true)
	return p, nil
}

func open6(ctx context.Context, i *net.Interface) (*ipv6.PacketConn, error) {
	conn, err := listen(ctx, "udp6", "::")
	if err != nil {
		return nil, err
	}
	p := ipv6.NewPacketConn(conn)
	err = firstOf(
		step("multicast hops", p.SetMulticastHopLimit(multicast.Hops)),
		step("hops", p.SetHopLimit(multicast.Hops)),
		step("multicast loopback", p.SetMulticastLoopback(true)),
		step("multicast interface", p.SetMulticastInterface(i)),
		step("join the multicast group", p.JoinGroup(i, multicast.Group6())),
	)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = p.SetControlMessage(ipv6.FlagInterface|ipv6.FlagDst, true)
	return p, nil
}

func listen(ctx context.Context, network, address string) (net.PacketConn, error) {
	listening := net.ListenConfig{Control: multicast.SharePort}
	conn, err := listening.ListenPacket(ctx, network, net.JoinHostPort(address, strconv.Itoa(multicast.Port)))
	return conn, step("open the port of mDNS", err)
}

func step(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// read is one packet: its length, the interface and the address that it came to,
// and its sender.
type read func(buffer []byte) (n, link int, to net.IP, from net.Addr, err error)

func reader4(conn *ipv4.PacketConn) read {
	return func(buffer []byte) (n, link int, to net.IP, from net.Addr, err error) {
		n, control, from, err := conn.ReadFrom(buffer)
		if control != nil {
			link, to = control.IfIndex, control.Dst
		}
		return n, link, to, from, step("read", err)
	}
}

func reader6(conn *ipv6.PacketConn) read {
	return func(buffer []byte) (n, link int, to net.IP, from net.Addr, err error) {
		n, control, from, err := conn.ReadFrom(buffer)
		if control != nil {
			link, to = control.IfIndex, control.Dst
		}
		return n, link, to, from, step("read", err)
	}
}

// receive hands on what comes until its socket is closed.
func (s *sockets) receive(o *linkSockets, next read) {
	// For whatever UDP can carry: on Windows a message longer than the buffer is
	// an error, and whoever sent one would silence the gateway.
	buffer := make([]byte, 1<<16)
	own := o.link.Index
	for {
		n, link, to, from, err := next(buffer)
		if err != nil {
			o.broken.Store(true)
			return
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || n > multicast.MaxMessage {
			continue
		}
		p := packet{data: slices.Clone(buffer[:n]), link: own, from: unmapped(udp.AddrPort())}
		if address, ok := netip.AddrFromSlice(to); ok {
			p.to = address.Unmap()
		}
		switch {
		case link == 0 && !multicast.Near(o.link.Prefixes, p.from.Addr()):
			p.link = 0 // to an address, on Windows: its sender's network tells
		case link == 0 || link == own:
		case p.to.IsMulticast():
			continue // the socket of that link hears it too
		default:
			p.link = link // what comes to an address reaches any one of the sockets
		}
		select {
		case s.received <- p:
		case <-s.stop:
			return
		}
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// send implements the responder's [send]: to everybody by IPv4 and IPv6.
func (s *sockets) send(link int, to netip.AddrPort, message []byte) bool {
	o := s.open[link]
	if o == nil || !o.usable {
		return false
	}
	// The way back is the way it came, also where two interfaces have networks with
	// the same addresses. Windows cannot be told.
	send4 := func(to net.Addr) error {
		_, err := o.by4.WriteTo(message, &ipv4.ControlMessage{IfIndex: link}, to)
		return step("send", err)
	}
	send6 := func(to net.Addr) error {
		_, err := o.by6.WriteTo(message, &ipv6.ControlMessage{IfIndex: link}, to)
		return step("send", err)
	}
	var err error
	switch {
	case to.IsValid() && to.Addr().Is4() && o.by4 != nil:
		err = send4(net.UDPAddrFromAddrPort(to))
	case to.IsValid() && to.Addr().Is6() && o.by6 != nil:
		err = send6(net.UDPAddrFromAddrPort(to))
	case to.IsValid():
		return false
	case o.by4 == nil:
		err = send6(multicast.Group6())
	default:
		err = send4(multicast.Group())
		if o.by6 != nil {
			_ = send6(multicast.Group6()) // fails for a second while an address is new
		}
	}
	o.note(err)
	return err == nil
}

// unusable are the links whose sockets could not be opened.
func (s *sockets) unusable() []Link {
	var links []Link
	for _, o := range s.open {
		if !o.usable {
			links = append(links, o.link)
		}
	}
	slices.SortFunc(links, func(a, b Link) int { return a.Index - b.Index })
	return links
}

func (o *linkSockets) note(err error) {
	o.fault = ""
	if err != nil {
		o.fault = err.Error()
	}
}

// fault is why nodes on a link cannot find the gateway.
func (s *sockets) fault(name string) string {
	for _, o := range s.open {
		if o.link.Name == name {
			return o.fault
		}
	}
	return ""
}
