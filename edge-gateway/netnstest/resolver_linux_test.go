package netnstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/multicast"
)

// playEnv makes the test's own binary play a client, on an interface eth0.
const playEnv = "COLDAISLE_TEST_PLAY"

// play is what to play.
type play struct {
	Client string // lwip, esp, multicast, six, site, resolve, browse, check, listener, selfish, spoofer, rival or waiter
	Name   string // that is asked for
	Type   uint16
	Way    discover.Way // of resolve
	On     string       // interface, if not eth0
	// Claimed is the address that a spoofer or a rival claims the name for, and that a
	// waiter waits for; Packets is how many claims a spoofer makes.
	Claimed netip.Addr
	Packets int
	// Port and Own are those of a check.
	Port int
	Own  []netip.Addr
	// Interval is that of a site's nodes.
	Interval time.Duration
	// Patience is how long a client asks again every second; zero for [patience].
	Patience time.Duration
}

// patience is for a client that must find something on a machine that is busy; briefly is for
// one that must not, or that is played again until it does.
const (
	patience = time.Minute
	briefly  = 5 * time.Second
)

func TestMain(m *testing.M) {
	if part := os.Getenv(playEnv); part != "" {
		if err := perform(part); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if programFolder, err = os.MkdirTemp("", "coldaisle-network"); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programFolder)
	os.Exit(code)
}

func perform(part string) error {
	var p play
	if err := json.Unmarshal([]byte(part), &p); err != nil {
		return err
	}
	i, err := net.InterfaceByName(cmp.Or(p.On, "eth0"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(p.Patience, patience))
	defer cancel()
	if p.Client == "listener" {
		return p.listen(i)
	}
	switch p.Client {
	case "selfish":
		return hold()
	case "spoofer":
		return p.spoof(i)
	case "rival":
		return p.rival(i)
	case "check":
		err := discover.Check(ctx, *i, cmp.Or(p.Port, port), p.Own)
		switch {
		case err == nil:
			fmt.Println("reached")
		case errors.Is(err, discover.ErrNotFound):
			fmt.Println("not found")
		case errors.Is(err, discover.ErrWrongAddress):
			fmt.Println("wrong address")
		case errors.Is(err, syscall.ECONNREFUSED):
			fmt.Println("refused")
		default:
			fmt.Println(err)
		}
		return nil
	case "waiter":
		return p.await(i)
	case "site":
		return p.site()
	case "six":
		return p.resolve6(ctx, i)
	}
	if p.Client == "resolve" {
		addresses, err := discover.Resolve(ctx, *i, p.Way)
		if err != nil {
			return err
		}
		_, err = fmt.Println(addresses)
		return err
	}
	if p.Client == "browse" {
		found, err := discover.Browse(ctx, *i)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(found)
	}
	return p.resolve(ctx, i)
}

// listen says when it begins to listen to the group, and when it is told that an
// address of the name is no more.
func (p play) listen(i *net.Interface) error {
	packets, err := multicast.Listen(context.Background(), "udp4", "224.0.0.251")
	if err != nil {
		return err
	}
	conn := ipv4.NewPacketConn(packets)
	if err := errors.Join(conn.JoinGroup(i, multicast.Group()), conn.SetReadDeadline(time.Now().Add(3*time.Minute))); err != nil {
		return err
	}
	fmt.Println("listening")
	buffer := make([]byte, multicast.MaxMessage)
	for {
		n, _, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		var m dns.Msg
		if m.Unpack(buffer[:n]) != nil {
			continue
		}
		for _, record := range m.Answer {
			if a, ok := record.(*dns.A); ok && a.Hdr.Ttl == 0 && dns.CanonicalName(a.Hdr.Name) == p.Name {
				_, err := fmt.Println("goodbye", a.A)
				return err
			}
		}
	}
}

// hold has the port of mDNS, and shares it with nobody, until it is killed.
func hold() error {
	listening := net.ListenConfig{}
	packets, err := listening.ListenPacket(context.Background(), "udp4", fmt.Sprintf(":%d", multicast.Port))
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		if _, _, err := packets.ReadFrom(make([]byte, 1)); err != nil {
			return err
		}
	}
}

// resolve asks as small devices do and prints the first address it accepts.
func (p play) resolve(ctx context.Context, i *net.Interface) error {
	var local string
	question := dns.Question{Name: p.Name, Qtype: p.Type, Qclass: dns.ClassINET}
	accept := func(m *dns.Msg) bool { return m.Response }
	m := dns.Msg{Question: []dns.Question{question}}
	switch p.Client {
	case "lwip": // its DNS client: a port of its own; id and the one question must match
		local = ""
		m.Id = 0x1234
		accept = func(answer *dns.Msg) bool {
			return answer.Response && answer.Id == m.Id && len(answer.Question) == 1 && answer.Question[0] == question
		}
	case "esp": // asks for a unicast answer from port 5353 and takes no other
		local = multicast.Prefixes(*i)[0].Addr().String()
		m.Question[0].Qclass |= 1 << 15
	case "multicast": // hears only what goes to the group
		local = "224.0.0.251"
	default:
		return fmt.Errorf("no client %q", p.Client)
	}
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", ":0")
	if local != "" {
		_ = packets.Close()
		packets, err = multicast.Listen(ctx, "udp4", local)
	}
	if err != nil {
		return err
	}
	conn := ipv4.NewPacketConn(packets)
	if err := errors.Join(conn.SetMulticastInterface(i), conn.JoinGroup(i, multicast.Group())); err != nil {
		return err
	}
	wire, err := m.Pack()
	if err != nil {
		return err
	}
	buffer := make([]byte, multicast.MaxMessage)
	for ctx.Err() == nil {
		if _, err := conn.WriteTo(wire, nil, multicast.Group()); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		for {
			n, _, _, err := conn.ReadFrom(buffer)
			if err != nil {
				break // ask again
			}
			var answer dns.Msg
			if answer.Unpack(buffer[:n]) != nil || !accept(&answer) {
				continue
			}
			for _, record := range answer.Answer {
				if a, ok := record.(*dns.A); ok && a.Hdr.Ttl > 0 && dns.CanonicalName(a.Hdr.Name) == dns.CanonicalName(p.Name) {
					address, _ := netip.AddrFromSlice(a.A)
					_, err := fmt.Println(address.Unmap())
					return err
				}
			}
		}
	}
	return fmt.Errorf("%s found no address of %s", p.Client, p.Name)
}

// joined is a socket on the port and the group of mDNS, on an interface.
func joined(i *net.Interface) (*ipv4.PacketConn, error) {
	packets, err := multicast.Listen(context.Background(), "udp4", "0.0.0.0")
	if err != nil {
		return nil, err
	}
	conn := ipv4.NewPacketConn(packets)
	return conn, errors.Join(conn.SetMulticastInterface(i), conn.SetMulticastTTL(multicast.Hops), conn.JoinGroup(i, multicast.Group()))
}

// claims is a response that has the name for another address.
func (p play) claims() ([]byte, error) {
	const flush = 1 << 15
	m := dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: p.Name, Rrtype: dns.TypeA, Class: dns.ClassINET | flush, Ttl: 120}, A: p.Claimed.AsSlice(),
	}}}
	return m.Pack()
}

// legacy is the same for a resolver that knows only unicast DNS.
func (p play) legacy(asked *dns.Msg) ([]byte, error) {
	m := new(dns.Msg).SetReply(asked)
	m.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: p.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 10}, A: p.Claimed.AsSlice(),
	}}
	return m.Pack()
}

// await asks five times a second until the name has the address, for three minutes.
func (p play) await(i *net.Interface) error {
	fmt.Println("asking")
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		addresses, err := discover.Resolve(ctx, *i, discover.Legacy)
		<-ctx.Done() // the pace
		cancel()
		if err == nil && slices.Contains(addresses, p.Claimed) {
			_, err := fmt.Println("found")
			return err
		}
	}
	return fmt.Errorf("the name is not %s", p.Claimed)
}

// spoof claims the name again and again, a hundred times a second, until it is killed, and
// says when the packets are out.
func (p play) spoof(i *net.Interface) error {
	conn, err := joined(i)
	if err != nil {
		return err
	}
	wire, err := p.claims()
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if n == p.Packets {
			fmt.Println("done")
		}
		if _, err := conn.WriteTo(wire, nil, multicast.Group()); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // the pace
	}
}

// rival is a device that has the name: it announces it, and answers whoever asks
// for it, until it is killed.
func (p play) rival(i *net.Interface) error {
	conn, err := joined(i)
	if err != nil {
		return err
	}
	wire, err := p.claims()
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(wire, nil, multicast.Group()); err != nil {
		return err
	}
	fmt.Println("has the name")
	buffer := make([]byte, multicast.MaxMessage)
	for {
		n, _, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		var m dns.Msg
		if m.Unpack(buffer[:n]) != nil || m.Response {
			continue
		}
		for _, q := range m.Question {
			if dns.CanonicalName(q.Name) != p.Name {
				continue
			}
			answer, to := wire, net.Addr(multicast.Group())
			if udp, ok := from.(*net.UDPAddr); ok && udp.Port != multicast.Port {
				if answer, err = p.legacy(&m); err != nil {
					return err
				}
				to = from
			}
			if _, err := conn.WriteTo(answer, nil, to); err != nil {
				return err
			}
		}
	}
}

// resolve6 asks by IPv6 for an IPv6 address and prints it.
func (p play) resolve6(ctx context.Context, i *net.Interface) error {
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp6", "[::]:0")
	if err != nil {
		return err
	}
	conn := ipv6.NewPacketConn(packets)
	if err := conn.SetMulticastInterface(i); err != nil {
		return err
	}
	m := dns.Msg{MsgHdr: dns.MsgHdr{Id: 0x1234}, Question: []dns.Question{{Name: p.Name, Qtype: dns.TypeAAAA, Qclass: dns.ClassINET}}}
	wire, err := m.Pack()
	if err != nil {
		return err
	}
	buffer := make([]byte, multicast.MaxMessage)
	for ctx.Err() == nil {
		_, _ = conn.WriteTo(wire, nil, multicast.Group6()) // fails while the address is new
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		n, _, _, err := conn.ReadFrom(buffer)
		if err != nil {
			continue // ask again
		}
		var answer dns.Msg
		if answer.Unpack(buffer[:n]) != nil || answer.Id != m.Id {
			continue
		}
		for _, record := range answer.Answer {
			if a, ok := record.(*dns.AAAA); ok {
				_, err := fmt.Println(a.AAAA)
				return err
			}
		}
	}
	return fmt.Errorf("no IPv6 address of %s", p.Name)
}
