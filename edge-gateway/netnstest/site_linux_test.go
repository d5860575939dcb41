package netnstest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/multicast"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/tooltest"
)

// need returns the path of a program. Those of daemons are not on everybody's PATH.
func need(t *testing.T, name string) string {
	t.Helper()
	return tooltest.Program(t, name, "/usr/sbin/", "/sbin/", "/usr/bin/")
}

var hosts atomic.Int64

// host is a network namespace: a machine with a network of its own.
type host struct {
	t    *testing.T
	name string
}

// newHost makes a machine without network. Namespaces need Linux and root.
func newHost(t *testing.T) *host {
	t.Helper()
	need(t, "ip")
	if os.Geteuid() != 0 {
		tooltest.Unable(t, "network namespaces need root")
	}
	h := &host{t: t, name: fmt.Sprintf("coldaisle-%d-%d", os.Getpid(), hosts.Add(1))}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", h.name).CombinedOutput(); err != nil {
		tooltest.Unable(t, "network namespaces are not allowed here: %s", out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = exec.CommandContext(ctx, "ip", "netns", "delete", h.name).Run()
	})
	h.ip("link", "set", "lo", "up")
	return h
}

func (h *host) ip(arguments ...string) {
	h.t.Helper()
	if out, err := exec.CommandContext(h.t.Context(), "ip", append([]string{"-n", h.name}, arguments...)...).CombinedOutput(); err != nil {
		h.t.Fatalf("ip %v: %v: %s", arguments, err, out)
	}
}

// cable joins two hosts, to eth0 of the second. Each end has, unless empty, an address.
func cable(a *host, nameA, addressA string, b *host, addressB string) {
	const nameB = "eth0"
	a.t.Helper()
	a.ip("link", "add", nameA, "type", "veth", "peer", "name", nameB, "netns", b.name)
	for _, end := range []struct {
		*host
		name, address string
	}{{a, nameA, addressA}, {b, nameB, addressB}} {
		if end.address != "" {
			end.ip("address", "add", end.address, "dev", end.name)
		}
		end.ip("link", "set", end.name, "up")
	}
}

// command is a program on the host, with variables beside the test's own.
func (h *host) command(ctx context.Context, environ []string, name string, arguments ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.name, name}, arguments...)...)
	c.Env = append(os.Environ(), environ...)
	return c
}

// says runs a program on the host and returns what it prints. Nothing here
// takes two minutes but on a machine that is very busy.
func (h *host) says(environ []string, name string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	c := h.command(ctx, environ, name, arguments...)
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", name, err, out, errors.String())
	}
	return strings.TrimSpace(string(out)), err
}

// plays has the test's binary play a client on the host.
func (h *host) plays(p play) (string, error) {
	part, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	return h.says([]string{playEnv + "=" + string(part)}, os.Args[0])
}

// player is the test's binary, which plays a client until it is ended.
type player struct {
	in    io.Writer
	lines *bufio.Scanner
	log   logtest.Buffer
	end   func()
}

func (h *host) playing(p play) *player {
	h.t.Helper()
	part := must.Get(json.Marshal(p))(h.t)
	c := h.command(h.t.Context(), []string{playEnv + "=" + string(part)}, os.Args[0])
	made := &player{in: must.Get(c.StdinPipe())(h.t), lines: bufio.NewScanner(must.Get(c.StdoutPipe())(h.t))}
	made.lines.Buffer(nil, 1<<20)
	c.Stderr = &made.log
	must.Do(h.t, c.Start())
	made.end = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if h.t.Failed() {
			h.t.Logf("the %s says\n%s", p.Client, made.log.String())
		}
	})
	h.t.Cleanup(made.end)
	return made
}

// line is the next that it prints.
func (p *player) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

// buildGateway builds the gateway, once: a host has no network to do it with.
var buildGateway = sync.OnceValue(func() error {
	return processtest.Build(context.Background(), filepath.Join(programFolder, "edge-gateway"), "coldaisle.dev/edge-gateway", "")
})

// programFolder is where it is, for as long as the tests run.
var programFolder string

// gatewayProgram returns the path of the gateway.
func gatewayProgram(t *testing.T) string {
	t.Helper()
	must.Do(t, buildGateway())
	return filepath.Join(programFolder, "edge-gateway")
}

// gateway is the program on a host.
type gateway struct {
	*host

	process *exec.Cmd
	log     logtest.Buffer
}

const port = 8080

func (h *host) startGateway(settings ...string) *gateway {
	h.t.Helper()
	g := &gateway{host: h}
	// Nobody takes what it publishes: the gateway must be found all the same.
	g.process = h.command(context.WithoutCancel(h.t.Context()), append([]string{
		"PROJECT_ID=site", "PUBSUB_EMULATOR_HOST=127.0.0.1:9", "PORT=" + strconv.Itoa(port), "OUTBOX_DIR=" + h.t.TempDir(),
	}, settings...), gatewayProgram(h.t))
	g.process.Stderr = &g.log
	must.Do(h.t, g.process.Start())
	h.t.Cleanup(func() {
		g.end(syscall.SIGKILL)
		if h.t.Failed() {
			h.t.Logf("log of the gateway:\n%s", g.log.String())
		}
	})
	return g
}

func (g *gateway) end(signal syscall.Signal) {
	if g.process != nil {
		_ = g.process.Process.Signal(signal)
		_ = g.process.Wait()
		g.process = nil
	}
}

// health is the gateway's own view, of /health; zero while it does not answer.
type health struct {
	Reasons   []string       `json:"reasons"`
	Status    string         `json:"status"`
	Discovery announce.State `json:"mdns"`
}

func (g *gateway) health() (h health) {
	out, err := g.says(nil, "curl", "--silent", "--max-time", "5", fmt.Sprintf("http://127.0.0.1:%d/health", port))
	if err == nil {
		_ = json.Unmarshal([]byte(out), &h)
	}
	return h
}

func (g *gateway) state() announce.State { return g.health().Discovery }

// becomes waits until the gateway has a role under a name.
func (g *gateway) becomes(role announce.Role, name string) {
	g.t.Helper()
	var last announce.State
	must.Eventually(g.t, fmt.Sprintf("%s as %s", role, name), func() bool {
		last = g.state()
		return last.Role == role && strings.HasPrefix(last.Host, name) && len(last.Links) > 0 && last.Links[0].Phase == "ready"
	})
}

// ready waits until the gateway has claimed its names on so many links.
func (g *gateway) ready(links int) {
	g.t.Helper()
	must.Eventually(g.t, fmt.Sprintf("ready on %d links", links), func() bool {
		done := 0
		for _, l := range g.state().Links {
			if l.Phase == "ready" {
				done++
			}
		}
		return done == links
	})
}

// playEnv makes the test's own binary play a client, on an interface eth0.
const playEnv = "COLDAISLE_TEST_PLAY"

// play is what to play.
type play struct {
	Client string // lwip, esp, multicast, six, site, resolve, browse, check, listener, selfish or rival
	Name   string // that is asked for
	Type   uint16
	Way    discover.Way // of resolve
	On     string       // interface, if not eth0
	// Claimed is the address that a rival claims the name for.
	Claimed netip.Addr
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
	// The tests mostly wait for each other's timers, not for a processor.
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
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
	switch p.Client {
	case "listener":
		return p.listen(i)
	case "selfish":
		return hold()
	case "rival":
		return p.rival(i)
	case "site":
		return p.site()
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
	case "resolve":
		addresses, err := discover.Resolve(ctx, *i, p.Way)
		if err == nil {
			fmt.Println(addresses)
		}
		return err
	case "browse":
		found, err := discover.Browse(ctx, *i)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(found)
	default:
		return p.resolve(ctx, i)
	}
}

// joined is a socket in the group of mDNS, on an interface: at an address of port 5353, or,
// without one, at a port of its own.
func joined(ctx context.Context, i *net.Interface, address string) (packets net.PacketConn, err error) {
	if address == "" {
		packets, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp4", ":0")
	} else {
		packets, err = multicast.Listen(ctx, "udp4", address)
	}
	if err != nil {
		return nil, err
	}
	conn := ipv4.NewPacketConn(packets)
	return packets, errors.Join(conn.SetMulticastInterface(i), conn.SetMulticastTTL(multicast.Hops), conn.JoinGroup(i, multicast.Group()))
}

// joined6 is a socket of IPv6 at a port of its own.
func joined6(ctx context.Context, i *net.Interface) (net.PacketConn, error) {
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp6", "[::]:0")
	if err != nil {
		return nil, err
	}
	return packets, ipv6.NewPacketConn(packets).SetMulticastInterface(i)
}

// listen says when it begins to listen to the group, and when it is told that an address of the name is no more.
func (p play) listen(i *net.Interface) error {
	conn, err := joined(context.Background(), i, "224.0.0.251")
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		return err
	}
	fmt.Println("listening")
	buffer := make([]byte, multicast.MaxMessage)
	for {
		n, _, err := conn.ReadFrom(buffer)
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
	m := dns.Msg{Question: []dns.Question{{Name: p.Name, Qtype: p.Type, Qclass: dns.ClassINET}}}
	question := &m.Question[0]
	group := multicast.Group()
	local := "" // a port of its own
	switch p.Client {
	case "lwip": // its DNS client: id and the one question must match
		m.Id = 0x1234
	case "esp": // asks for a unicast answer from port 5353 and takes no other
		local = multicast.Prefixes(*i)[0].Addr().String()
		question.Qclass |= 1 << 15
	case "multicast": // hears only what goes to the group
		local = "224.0.0.251"
	case "six": // the same as lwip by IPv6
		m.Id, question.Qtype, group = 0x1234, dns.TypeAAAA, multicast.Group6()
	default:
		return fmt.Errorf("no client %q", p.Client)
	}
	conn, err := joined(ctx, i, local)
	if p.Client == "six" {
		conn, err = joined6(ctx, i)
	}
	if err != nil {
		return err
	}
	wire, err := m.Pack()
	if err != nil {
		return err
	}
	buffer := make([]byte, multicast.MaxMessage)
	for ctx.Err() == nil {
		if _, err := conn.WriteTo(wire, group); err != nil && p.Client != "six" { // which fails while its address is new
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				break // ask again
			}
			var answer dns.Msg
			if answer.Unpack(buffer[:n]) != nil || !answer.Response || m.Id != 0 && (answer.Id != m.Id || !slices.Equal(answer.Question, m.Question)) {
				continue
			}
			for _, record := range answer.Answer {
				var address net.IP
				switch record := record.(type) {
				case *dns.A:
					address = record.A
				case *dns.AAAA:
					address = record.AAAA
				}
				header := record.Header()
				ours := (address.To4() == nil) == (p.Client == "six") // an announcement has addresses of both families
				if ours && address != nil && header.Ttl > 0 && dns.CanonicalName(header.Name) == dns.CanonicalName(p.Name) {
					_, err := fmt.Println(address)
					return err
				}
			}
		}
	}
	return fmt.Errorf("%s found no address of %s", p.Client, p.Name)
}

// claims is a response that has the name for another address; to a question of a resolver
// that knows only unicast DNS, if there is one.
func (p play) claims(asked *dns.Msg) ([]byte, error) {
	const flush = 1 << 15
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}}
	header := dns.RR_Header{Name: p.Name, Rrtype: dns.TypeA, Class: dns.ClassINET | flush, Ttl: 120}
	if asked != nil {
		m.SetReply(asked)
		header.Class, header.Ttl = dns.ClassINET, 10
	}
	m.Answer = []dns.RR{&dns.A{Hdr: header, A: p.Claimed.AsSlice()}}
	return m.Pack()
}

// rival is a device that has the name: it announces it, and answers whoever asks for it, until it is killed.
func (p play) rival(i *net.Interface) error {
	conn, err := joined(context.Background(), i, "0.0.0.0")
	if err != nil {
		return err
	}
	wire, err := p.claims(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(wire, multicast.Group()); err != nil {
		return err
	}
	fmt.Println("has the name")
	buffer := make([]byte, multicast.MaxMessage)
	for {
		n, from, err := conn.ReadFrom(buffer)
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
				if answer, err = p.claims(&m); err != nil {
					return err
				}
				to = from
			}
			if _, err := conn.WriteTo(answer, to); err != nil {
				return err
			}
		}
	}
}
