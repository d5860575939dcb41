// Package discover finds the gateway by multicast DNS in the ways that nodes
// do, so that simulated nodes take the real way and doctor sees what a node on
// the same link would see.
//
// hashicorp/mdns was looked at for it: it asks in one way only, takes an answer
// to somebody else's question for one to its own, and does not say where an
// answer came from.
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

// Name is what the gateway's instance and host are called; a second one on the
// same network has a number behind it.
const Name = "monitor-gateway"

const serviceType = "_http._tcp.local."

// Mode is a way to ask.
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
	Instance  string       // such as monitor-gateway
	Host      string       // such as monitor-gateway.local
	Port      int          // of the service
	Addresses []netip.Addr // of the host
	Text      []string     // of the TXT record
	From      netip.Addr   // who said so
}

// URL is the base address for requests, by the first address.
func (g Gateway) URL() string {
	return "http://" + net.JoinHostPort(g.Addresses[0].String(), strconv.Itoa(g.Port))
}

// Times between repeated questions: one may get lost in the air.
const (
	firstPause = time.Second
	maxPause   = 4 * time.Second
)

// Interfaces are those that can do multicast and have an IPv4 address.
func Interfaces() ([]net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return slices.DeleteFunc(all, func(i net.Interface) bool {
		return i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 || i.Flags&net.FlagLoopback != 0 || len(multicast.Prefixes(i)) == 0
	}), nil
}

// Find asks on every interface, in the legacy way, and returns the gateway that
// answers first.
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
			found, err := Ask(ctx, i, Legacy)
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

// Ask asks on one interface, in one way, until a gateway has told all that a
// node needs or the context ends.
func Ask(ctx context.Context, i net.Interface, mode Mode) (Gateway, error) {
	conn, err := open(ctx, i, mode)
	if err != nil {
		return Gateway{}, fmt.Errorf("%s: ask by %s: %w", i.Name, mode, err)
	}
	defer func() { _ = conn.Close() }()
	// Reading ends with the context.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	q := inquiry{conn: conn, mode: mode, on: i}
	if err := q.run(ctx); err != nil {
		return Gateway{}, fmt.Errorf("%s: ask by %s: %w", i.Name, mode, err)
	}
	return q.found, nil
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

// inquiry is one way to ask, under way.
type inquiry struct {
	conn  *ipv4.PacketConn
	mode  Mode
	on    net.Interface
	id    uint16       // of the last legacy question
	asked dns.Question // the last
	found Gateway
}

func (q *inquiry) run(ctx context.Context) error {
	buffer := make([]byte, multicast.MaxMessage)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := q.ask(); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, pause)
		err := q.listen(wait, buffer)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ErrNotFound
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
}

// ask sends the question that is next: one a message, as simple resolvers do.
func (q *inquiry) ask() error {
	question := dns.Question{Name: serviceType, Qtype: dns.TypePTR, Qclass: dns.ClassINET}
	switch {
	case q.found.Instance == "":
	case q.found.Host == "":
		question.Name, question.Qtype = q.found.Instance+"."+serviceType, dns.TypeSRV
	default:
		question.Name, question.Qtype = q.found.Host+".", dns.TypeA
	}
	m := dns.Msg{Question: []dns.Question{question}}
	switch q.mode {
	case Legacy:
		q.id = uint16(rand.Uint32()) //nolint:gosec // tells one's own answer apart, keeps no secret
		m.Id = q.id
	case Unicast:
		m.Question[0].Qclass |= 1 << 15
	case Multicast:
	}
	q.asked = m.Question[0]
	wire, err := m.Pack()
	if err != nil {
		return fmt.Errorf("write the question: %w", err)
	}
	if _, err := q.conn.WriteTo(wire, nil, multicast.Group()); err != nil {
		return fmt.Errorf("send the question: %w", err)
	}
	return nil
}

// listen takes answers until they are complete, or another question is next.
func (q *inquiry) listen(ctx context.Context, buffer []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = q.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = q.conn.SetReadDeadline(time.Time{})
	}()
	for {
		n, control, from, err := q.conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			return context.DeadlineExceeded
		}
		if err != nil {
			return fmt.Errorf("read answers: %w", err)
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || (control != nil && control.IfIndex != 0 && control.IfIndex != q.on.Index) {
			continue
		}
		before := q.found
		q.take(buffer[:n], udp.AddrPort().Addr().Unmap())
		if q.found.Port != 0 && len(q.found.Addresses) > 0 {
			return nil
		}
		if before.Instance != q.found.Instance || before.Host != q.found.Host {
			if err := q.ask(); err != nil {
				return err
			}
		}
	}
}

// take reads what an answer says of a gateway.
func (q *inquiry) take(data []byte, from netip.Addr) {
	var m dns.Msg
	if err := m.Unpack(data); err != nil || !m.Response {
		return
	}
	if q.mode == Legacy && (m.Id != q.id || len(m.Question) != 1 || m.Question[0] != q.asked) {
		return // lwIP would not take it either
	}
	records := slices.Concat(m.Answer, m.Extra)
	for _, record := range records {
		if p, ok := record.(*dns.PTR); ok && q.found.Instance == "" && strings.EqualFold(p.Hdr.Name, serviceType) {
			if label, _, ok := strings.Cut(p.Ptr, "."); ok && named(label) && p.Hdr.Ttl > 0 {
				q.found.Instance, q.found.From = label, from
			}
		}
	}
	for _, record := range records {
		switch r := record.(type) {
		case *dns.SRV:
			if strings.EqualFold(r.Hdr.Name, q.found.Instance+"."+serviceType) {
				q.found.Host, q.found.Port = strings.TrimSuffix(r.Target, "."), int(r.Port)
			}
		case *dns.TXT:
			if strings.EqualFold(r.Hdr.Name, q.found.Instance+"."+serviceType) {
				q.found.Text = r.Txt
			}
		}
	}
	for _, record := range records {
		if a, ok := record.(*dns.A); ok && q.found.Host != "" && strings.EqualFold(a.Hdr.Name, q.found.Host+".") {
			if address, ok := netip.AddrFromSlice(a.A); ok && !slices.Contains(q.found.Addresses, address.Unmap()) {
				q.found.Addresses = append(q.found.Addresses, address.Unmap())
			}
		}
	}
}

// named reports whether an instance is a gateway: its name, or that with a
// number.
func named(label string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(label), Name)
	if !ok || rest == "" {
		return ok
	}
	number, ok := strings.CutPrefix(rest, "-")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}
