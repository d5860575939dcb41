// Package discover finds the gateway by multicast DNS, so that doctor sees what a
// node or a laptop on the same link would see, and simulated nodes need no
// address.
//
// There are two ways to find it. A node knows the gateway's name and its port, and
// asks for the address (A) of the name: [Resolve], in each of the ways in which
// nodes' resolvers ask. A program that knows neither browses for the service (PTR)
// and learns name, port and address (SRV, TXT, A): [Browse].
//
// Browse is hashicorp/mdns, which shares no line with our responder and so is an
// independent witness that it is found. The library cannot take Resolve's part: it
// asks for PTR records alone, from a port of its own.
package discover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"coldaisle.dev/edge-gateway/multicast"
)

// What nodes know of the gateway.
const (
	Name = "monitor-gateway" // of its service
	Host = Name + ".local"
	Port = 8080
)

// Mode is a way to ask for the name.
type Mode int

// The ways to ask.
const (
	Legacy    Mode = iota // from a port of one's own, as lwIP and dig do; the answer comes to it alone
	Unicast               // from port 5353, asking for a unicast answer (QU), as ESP-IDF does
	Multicast             // from port 5353, the answer goes to everybody (QM), as Avahi does
)

// String implements [fmt.Stringer].
func (m Mode) String() string {
	switch m {
	case Legacy:
		return "legacy"
	case Unicast:
		return "QU"
	default:
		return "QM"
	}
}

// Modes are all ways to ask.
func Modes() []Mode { return []Mode{Legacy, Unicast, Multicast} }

// ErrNotFound says that no gateway answered before the context ended.
var ErrNotFound = errors.New("no gateway answered")

// Gateway is what was found.
type Gateway struct {
	Instance string     // such as monitor-gateway; empty where nothing but the name was asked for
	Host     string     // such as monitor-gateway.local
	Address  netip.Addr // of the host, on the link
	Port     int        // of the service
	Text     []string   // of the TXT record
}

// URL is the base address for requests.
func (g Gateway) URL() string {
	return "http://" + net.JoinHostPort(g.Address.String(), strconv.Itoa(g.Port))
}

// Times between repeated questions: one may get lost in the air.
const (
	firstPause = time.Second
	maxPause   = 4 * time.Second
)

// Interfaces are those that can do multicast, have an IPv4 address, and are
// connected: a bridge of containers without any is not.
func Interfaces() ([]net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return slices.DeleteFunc(all, func(i net.Interface) bool {
		const needed = net.FlagUp | net.FlagRunning | net.FlagMulticast
		return i.Flags&needed != needed || i.Flags&net.FlagLoopback != 0 || len(multicast.Prefixes(i)) == 0
	}), nil
}

// Find looks on every interface and returns the gateway that is found first: by
// browsing, or, where that cannot be done, by name.
func Find(ctx context.Context) (Gateway, error) {
	interfaces, err := Interfaces()
	if err != nil {
		return Gateway{}, err
	}
	if len(interfaces) == 0 {
		return Gateway{}, fmt.Errorf("%w: no interface that can do multicast has an IPv4 address", ErrNotFound)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		found Gateway
		err   error
	}
	outcomes := make(chan outcome, len(interfaces))
	for _, i := range interfaces {
		go func() {
			found, err := Browse(ctx, i)
			if err != nil && !errors.Is(err, ErrNotFound) {
				found, err = byName(ctx, i)
			}
			outcomes <- outcome{found, err}
		}()
	}
	var faults []error
	for range interfaces {
		o := <-outcomes
		if o.err == nil {
			return o.found, nil
		}
		faults = append(faults, o.err)
	}
	return Gateway{}, errors.Join(faults...)
}

// byName finds what a node finds that knows the name and the port.
func byName(ctx context.Context, i net.Interface) (Gateway, error) {
	addresses, err := Resolve(ctx, i, Legacy)
	if err != nil {
		return Gateway{}, err
	}
	return Gateway{Host: Host, Address: addresses[0], Port: Port}, nil
}

// Resolve asks on one interface, in one way, for the addresses of [Host], until
// there is an answer or the context ends.
func Resolve(ctx context.Context, i net.Interface, mode Mode) ([]netip.Addr, error) {
	conn, err := open(ctx, i, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: ask by %s: %w", i.Name, mode, err)
	}
	defer func() { _ = conn.Close() }()
	// Reading ends with the context.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	q := query{conn: conn, mode: mode, on: i}
	addresses, err := q.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: ask by %s: %w", i.Name, mode, err)
	}
	return addresses, nil
}

// open makes the socket of a way to ask.
func open(ctx context.Context, i net.Interface, mode Mode) (*ipv4.PacketConn, error) {
	prefixes := multicast.Prefixes(i)
	if len(prefixes) == 0 {
		return nil, errors.New("the interface has no IPv4 address")
	}
	listening := net.ListenConfig{Control: multicast.SharePort}
	address := prefixes[0].Addr().String()
	local := net.JoinHostPort(address, "0")
	switch mode {
	case Unicast: // bound to the address, it gets the unicast answers of a shared port
		local = net.JoinHostPort(address, strconv.Itoa(multicast.Port))
	case Multicast:
		local = net.JoinHostPort("0.0.0.0", strconv.Itoa(multicast.Port))
	case Legacy:
		listening.Control = nil
	}
	packets, err := listening.ListenPacket(ctx, "udp4", local)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	conn := ipv4.NewPacketConn(packets)
	err = errors.Join(conn.SetMulticastInterface(&i), conn.SetMulticastTTL(multicast.Hops), conn.SetMulticastLoopback(true))
	if mode == Multicast {
		err = errors.Join(err, conn.JoinGroup(&i, multicast.Group()))
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("multicast: %w", err)
	}
	_ = conn.SetControlMessage(ipv4.FlagInterface, true) // Windows cannot; answers are then taken from anywhere
	return conn, nil
}

// query is one way to ask, under way.
type query struct {
	conn  *ipv4.PacketConn
	mode  Mode
	on    net.Interface
	asked dns.Msg // the last question
}

func (q *query) run(ctx context.Context) ([]netip.Addr, error) {
	buffer := make([]byte, multicast.MaxMessage)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := q.ask(); err != nil {
			return nil, err
		}
		wait, cancel := context.WithTimeout(ctx, pause)
		addresses, err := q.listen(wait, buffer)
		cancel()
		switch {
		case err == nil:
			return addresses, nil
		case ctx.Err() != nil:
			return nil, ErrNotFound
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

func (q *query) ask() error {
	q.asked = question(q.mode)
	wire, err := q.asked.Pack()
	if err != nil {
		return fmt.Errorf("write the question: %w", err)
	}
	if _, err := q.conn.WriteTo(wire, nil, multicast.Group()); err != nil {
		return fmt.Errorf("send the question: %w", err)
	}
	return nil
}

// question asks for the addresses of the host in one of the ways.
func question(mode Mode) dns.Msg {
	m := dns.Msg{Question: []dns.Question{{Name: Host + ".", Qtype: dns.TypeA, Qclass: dns.ClassINET}}}
	switch mode {
	case Legacy:
		m.Id = uint16(rand.Uint32()) //nolint:gosec // tells one's own answer apart, keeps no secret
	case Unicast:
		m.Question[0].Qclass |= 1 << 15
	case Multicast:
	}
	return m
}

// listen takes answers until one has an address.
func (q *query) listen(ctx context.Context, buffer []byte) ([]netip.Addr, error) {
	stop := context.AfterFunc(ctx, func() { _ = q.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = q.conn.SetReadDeadline(time.Time{})
	}()
	for {
		n, control, _, err := q.conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			return nil, context.DeadlineExceeded
		}
		if err != nil {
			return nil, fmt.Errorf("read answers: %w", err)
		}
		if control != nil && control.IfIndex != 0 && control.IfIndex != q.on.Index {
			continue
		}
		if addresses := answered(q.mode, q.asked, buffer[:n]); len(addresses) > 0 {
			return addresses, nil
		}
	}
}

// answered reads the addresses of the host that a message tells whoever asked so.
func answered(mode Mode, asked dns.Msg, data []byte) []netip.Addr {
	var m dns.Msg
	if err := m.Unpack(data); err != nil || !m.Response {
		return nil
	}
	if mode == Legacy && (m.Id != asked.Id || !slices.Equal(m.Question, asked.Question)) {
		return nil // lwIP would not take it either
	}
	var addresses []netip.Addr
	for _, record := range slices.Concat(m.Answer, m.Extra) {
		a, ok := record.(*dns.A)
		if !ok || a.Hdr.Ttl == 0 || !strings.EqualFold(a.Hdr.Name, Host+".") {
			continue
		}
		if address, ok := netip.AddrFromSlice(a.A); ok && !slices.Contains(addresses, address.Unmap()) {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}

// isGatewayName reports whether an instance is a gateway: its name, or that with
// the end of a hardware address, or with the number of older gateways.
func isGatewayName(label string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(label), Name)
	if !ok || rest == "" {
		return ok
	}
	own, ok := strings.CutPrefix(rest, "-")
	_, err := strconv.ParseUint(own, 16, 32)
	return ok && err == nil
}
