package announce

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/net/ipv4"

	"coldaisle.dev/edge-gateway/multicast"
)

// socket is port 5353 on every link. It shares the port with other responders
// of the machine. All but receive belongs to one goroutine.
type socket struct {
	conn    *ipv4.PacketConn
	current int // interface that multicast goes out by
	found   map[int]Link
	joined  map[int]*net.Interface
	faults  map[int]string // by interface
}

func open(ctx context.Context) (*socket, error) {
	listening := net.ListenConfig{Control: multicast.SharePort}
	conn, err := listening.ListenPacket(ctx, "udp4", fmt.Sprintf("0.0.0.0:%d", multicast.Port))
	if err != nil {
		return nil, fmt.Errorf("open the port of mDNS: %w", err)
	}
	s := &socket{
		conn: ipv4.NewPacketConn(conn), found: map[int]Link{}, joined: map[int]*net.Interface{}, faults: map[int]string{},
	}
	for what, err := range map[string]error{
		"multicast TTL":      s.conn.SetMulticastTTL(multicast.Hops),
		"TTL":                s.conn.SetTTL(multicast.Hops),
		"multicast loopback": s.conn.SetMulticastLoopback(true), // others on this machine listen too
	} {
		if err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("set %s: %w", what, err)
		}
	}
	// Windows cannot tell where a packet came from; the sender's network does then.
	_ = s.conn.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true)
	return s, nil
}

func (s *socket) close() { _ = s.conn.Close() }

// receive hands on what comes until the socket is closed or the context ends.
func (s *socket) receive(ctx context.Context, to chan<- packet) error {
	// For whatever UDP can carry: on Windows a message longer than the buffer is
	// an error, and whoever sent one would silence the gateway.
	buffer := make([]byte, 1<<16)
	for {
		n, control, from, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("read mDNS: %w", err)
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || n > multicast.MaxMessage {
			continue
		}
		p := packet{data: slices.Clone(buffer[:n]), from: unmapped(udp.AddrPort())}
		if control != nil {
			p.link = control.IfIndex
			if address, ok := netip.AddrFromSlice(control.Dst); ok {
				p.to = address.Unmap()
			}
		}
		select {
		case to <- p:
		case <-ctx.Done():
			return nil
		}
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// links looks at the machine's interfaces and joins the group on those that are
// new. Those that cannot be joined are tried again by the next call. One whose
// cable is out is not among them: when it is plugged in again, perhaps into
// another network, it begins anew (§8).
func (s *socket) links() []Link {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	s.found = map[int]Link{}
	var usable []Link
	for _, i := range interfaces {
		l := Link{Index: i.Index, Name: i.Name, Prefixes: multicast.Prefixes(i)}
		const needed = net.FlagUp | net.FlagRunning | net.FlagMulticast
		if i.Flags&needed != needed || i.Flags&net.FlagLoopback != 0 || len(l.Prefixes) == 0 {
			continue
		}
		s.found[i.Index] = l
		if s.joined[i.Index] == nil {
			// A membership may be left from before its address went.
			_ = s.conn.LeaveGroup(&i, multicast.Group())
			if err := s.conn.JoinGroup(&i, multicast.Group()); err != nil {
				s.note(i.Index, fmt.Errorf("join the multicast group: %w", err))
				continue
			}
			s.joined[i.Index] = &i
			s.note(i.Index, nil)
		}
		usable = append(usable, l)
	}
	for index, i := range s.joined {
		if _, ok := s.found[index]; !ok {
			_ = s.conn.LeaveGroup(i, multicast.Group()) // or the socket's memberships run out
			delete(s.joined, index)
			s.note(index, nil)
			if s.current == index {
				s.current = 0
			}
		}
	}
	return usable
}

// send implements the responder's [send].
func (s *socket) send(link int, to netip.AddrPort, message []byte) bool {
	i := s.joined[link]
	if i == nil {
		return false
	}
	destination := multicast.Group()
	// The way back is the way it came, also where two interfaces have networks with
	// the same addresses. Windows cannot be told.
	way := &ipv4.ControlMessage{IfIndex: link}
	if to.IsValid() {
		destination = net.UDPAddrFromAddrPort(to)
	} else if s.current != link {
		if err := s.conn.SetMulticastInterface(i); err != nil {
			s.note(link, fmt.Errorf("send by this interface: %w", err))
			return false
		}
		s.current = link
	}
	_, err := s.conn.WriteTo(message, way, destination)
	if err != nil {
		err = fmt.Errorf("send: %w", err)
	}
	s.note(link, err)
	return err == nil
}

// unjoined are the links whose group could not be joined.
func (s *socket) unjoined() []Link {
	var links []Link
	for index, l := range s.found {
		if s.joined[index] == nil {
			links = append(links, l)
		}
	}
	slices.SortFunc(links, func(a, b Link) int { return a.Index - b.Index })
	return links
}

func (s *socket) note(link int, err error) {
	if err == nil {
		delete(s.faults, link)
		return
	}
	s.faults[link] = err.Error()
}

func (s *socket) fault(link int) string { return s.faults[link] }
