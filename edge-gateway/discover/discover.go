// Package discover finds the gateway by multicast DNS, so that doctor and /health see the
// same as a node or a laptop on the link.
//
// There are two ways to find it. A node knows the gateway's name and its port, and
// asks for the address (A) of the name: [Resolve], in each of the ways in which
// nodes' resolvers ask. A program that knows neither browses for the service (PTR)
// and learns name, port and address (SRV, TXT, A): [Browse].
//
// Browse uses hashicorp/mdns, which shares no code with our responder and so is an
// independent check that it can be found. The library cannot replace Resolve: it asks
// only for PTR records, from a port of its own.
package discover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"coldaisle.dev/edge-gateway/multicast"
)

// The gateway's host and port, as nodes know them.
const (
	Host = multicast.Name + ".local"
	Port = 8080
)

// Way is a way to find the gateway.
type Way int

// The ways. All but the last ask for the address of the name.
const (
	Legacy    Way = iota // from another port, as lwIP and dig do; the answer goes to it alone
	Unicast              // from port 5353, asking for a unicast answer (QU), as ESP-IDF does
	Multicast            // from port 5353, the answer goes to everybody (QM), as Avahi does
	Browsing
)

// String implements [fmt.Stringer].
func (w Way) String() string { return [...]string{"legacy", "QU", "QM", "browse"}[w] }

// ErrNotFound says that no gateway answered before the context ended.
var ErrNotFound = errors.New("no gateway answered")

// Gateway is a gateway that was found.
type Gateway struct {
	Instance string     // such as monitor-gateway; empty if only the name was asked for
	Host     string     // such as monitor-gateway.local
	Address  netip.Addr // of the host, on the link
	Port     int        // of the service
	Text     []string   // of the TXT record
}

// Answer is the result of one way to ask.
type Answer struct {
	Way       Way
	Addresses []netip.Addr // of the host
	Service   Gateway      // found by browsing
	Err       error
}

// String is the answer for a person to read.
func (a Answer) String() string {
	text := fmt.Sprintf("%-6s ", a.Way)
	switch {
	case a.Err != nil && a.Way == Browsing && !errors.Is(a.Err, ErrNotFound):
		return text + "not possible from here: " + a.Err.Error()
	case a.Err != nil:
		return text + "no answer: " + a.Err.Error()
	case a.Way == Browsing:
		return text + fmt.Sprintf("%s is %s, port %d (%s)", a.Service.Instance, a.Service.Host, a.Service.Port, strings.Join(a.Service.Text, " "))
	}
	words := make([]string, len(a.Addresses))
	for n, address := range a.Addresses {
		words[n] = address.String()
	}
	return text + Host + " is " + strings.Join(words, " and ")
}

// Ask asks on an interface in several ways at once. It returns all answers, in the order of the
// ways, at the latest when the context ends.
func Ask(ctx context.Context, i net.Interface, ways ...Way) []Answer {
	answers := make([]Answer, len(ways))
	var asking sync.WaitGroup
	for n, way := range ways {
		asking.Go(func() {
			a := &answers[n]
			if a.Way = way; way == Browsing {
				a.Service, a.Err = Browse(ctx, i)
			} else {
				a.Addresses, a.Err = Resolve(ctx, i, way)
			}
		})
	}
	asking.Wait()
	return answers
}

// Interfaces lists the interfaces on which nodes may be: connected, with multicast and an IPv4
// address.
func Interfaces() ([]net.Interface, error) {
	all, err := multicast.Interfaces()
	return slices.DeleteFunc(all, func(i net.Interface) bool { return len(multicast.Prefixes(i)) == 0 }), err
}

// Times between repeated questions: one may get lost in the air.
const (
	firstPause = time.Second
	maxPause   = 4 * time.Second
)

// Resolve asks on one interface, in one way, for the addresses of [Host], until
// there is an answer or the context ends.
func Resolve(ctx context.Context, i net.Interface, way Way) ([]netip.Addr, error) {
	addresses, err := resolve(ctx, i, way)
	if err != nil && ctx.Err() != nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("%s: ask by %s: %w", i.Name, way, err)
	}
	return addresses, nil
}

func resolve(ctx context.Context, i net.Interface, way Way) ([]netip.Addr, error) {
	conn, err := open(ctx, i, way)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	buffer := make([]byte, multicast.MaxMessage)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		asked := question(way)
		wire, err := asked.Pack()
		if err != nil {
			return nil, fmt.Errorf("write the question: %w", err)
		}
		if _, err := conn.WriteTo(wire, nil, multicast.Group()); err != nil {
			return nil, fmt.Errorf("send the question: %w", err)
		}
		again, cancel := context.WithTimeout(ctx, pause)
		deadline, _ := again.Deadline()
		cancel()
		err = conn.SetReadDeadline(deadline)
		for err == nil {
			var n int
			var control *ipv4.ControlMessage
			if n, control, _, err = conn.ReadFrom(buffer); err != nil {
				break
			}
			if control != nil && control.IfIndex != 0 && control.IfIndex != i.Index {
				continue
			}
			if addresses := answered(way, asked, buffer[:n]); len(addresses) > 0 {
				return addresses, nil
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("read answers: %w", err)
		}
		// The context may end a little after its deadline.
		if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && !deadline.Before(end) {
			return nil, ErrNotFound
		}
	}
}

func open(ctx context.Context, i net.Interface, way Way) (*ipv4.PacketConn, error) {
	prefixes := multicast.Prefixes(i)
	if len(prefixes) == 0 {
		return nil, errors.New("the interface has no IPv4 address")
	}
	address := prefixes[0].Addr().String() // bound to it, a socket gets the unicast answers of a shared port
	var packets net.PacketConn
	var err error
	switch way {
	case Unicast:
		packets, err = multicast.Listen(ctx, "udp4", address)
	case Multicast:
		packets, err = multicast.Listen(ctx, "udp4", "0.0.0.0")
	default:
		packets, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp4", net.JoinHostPort(address, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	conn := ipv4.NewPacketConn(packets)
	err = errors.Join(conn.SetMulticastInterface(&i), conn.SetMulticastTTL(multicast.Hops), conn.SetMulticastLoopback(true))
	if way == Multicast {
		err = errors.Join(err, conn.JoinGroup(&i, multicast.Group()))
	}
	if err = errors.Join(err, conn.SetControlMessage(ipv4.FlagInterface, true)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("multicast: %w", err)
	}
	return conn, nil
}

func question(way Way) dns.Msg {
	m := dns.Msg{Question: []dns.Question{{Name: Host + ".", Qtype: dns.TypeA, Qclass: dns.ClassINET}}}
	if way == Legacy {
		m.Id = uint16(rand.Uint32()) //nolint:gosec // recognises the answer, keeps no secret
	}
	if way == Unicast {
		m.Question[0].Qclass |= 1 << 15
	}
	return m
}

// answered returns the host's addresses in a message that answers the question.
func answered(way Way, asked dns.Msg, data []byte) []netip.Addr {
	var m dns.Msg
	if err := m.Unpack(data); err != nil || !m.Response {
		return nil
	}
	if way == Legacy && (m.Id != asked.Id || !slices.Equal(m.Question, asked.Question)) {
		return nil // lwIP would refuse it too
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
