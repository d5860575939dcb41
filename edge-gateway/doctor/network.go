package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/multicast"
)

// answerTimeout is how long an answer may take; a responder waits up to half a second
// before it answers by multicast, and a question may get lost once.
const answerTimeout = 4 * time.Second

const (
	adviceMulticastBlocked = "multicast may be blocked on the way: see \"The network\" in docs/gateway.md, or configure the nodes with the gateway's address"
	adviceFirewall         = "let a firewall on this machine pass UDP port 5353 in and out; ask again when the gateway has run for some seconds"
	adviceOtherGateway     = "switch one of them off, or give the nodes a fixed address"
)

const subjectNetwork = "network"

// network looks for the gateway on every interface in every way that nodes use.
func (c Config) network(ctx context.Context, r *Report, state announce.State) {
	interfaces, err := net.Interfaces()
	if err != nil {
		r.problem(subjectNetwork, "", "the interfaces cannot be listed: %v", err)
		return
	}
	urls := []string{}
	const connected = net.FlagUp | net.FlagRunning // without a cable, or a bridge without containers, nothing is announced
	for _, i := range interfaces {
		prefixes := multicast.Prefixes(i)
		switch {
		case i.Flags&net.FlagLoopback != 0:
		case i.Flags&connected != connected:
			r.ok(subjectNetwork, "%s is down", i.Name)
		case len(prefixes) == 0:
			r.ok(subjectNetwork, "%s has no IPv4 address; it is picked up when it gets one", i.Name)
		case i.Flags&net.FlagMulticast == 0:
			r.warn(subjectNetwork, "nodes there must be configured with the address", "%s has %s and cannot do multicast", i.Name, listed(prefixes))
			if c.here {
				urls = append(urls, c.url(prefixes[0].Addr()))
			}
		case c.MDNSDisabled:
			r.ok(subjectNetwork, "%s has %s; MDNS is false, nothing is announced", i.Name, listed(prefixes))
			urls = append(urls, c.url(prefixes[0].Addr()))
		default:
			urls = append(urls, c.ask(ctx, r, i, prefixes, state))
		}
	}
	c.conclude(r, slices.DeleteFunc(urls, func(u string) bool { return u == "" }))
}

// ask asks on one interface and returns the address that nodes there should
// call; empty for none.
func (c Config) ask(ctx context.Context, r *Report, i net.Interface, prefixes []netip.Prefix, state announce.State) string {
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answers := discover.Ask(limited, i, discover.Legacy, discover.Unicast, discover.Multicast, discover.Browsing)
	lines := []string{fmt.Sprintf("%s has %s", i.Name, listed(prefixes))}
	var addresses []netip.Addr
	complete := true
	for _, a := range answers {
		lines = append(lines, a.String())
		addresses = append(addresses, a.Addresses...)
		complete = complete && (a.Err == nil || (a.Way == discover.Browsing && !errors.Is(a.Err, discover.ErrNotFound)))
	}
	text := strings.Join(lines, "\n")
	remedy, here := adviceMulticastBlocked, ""
	if c.here {
		remedy, here = adviceFirewall, c.url(prefixes[0].Addr())
	}
	if len(addresses) == 0 {
		r.problem(subjectNetwork, remedy, "%s", text)
		return here
	}
	port := cmp.Or(answers[len(answers)-1].Service.Port, c.Port, discover.Port)
	for _, answer := range answers {
		ofPrefix := func(is func(netip.Prefix, netip.Addr) bool) bool {
			return slices.ContainsFunc(answer.Addresses, func(a netip.Addr) bool {
				return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return is(p, a) })
			})
		}
		own := ofPrefix(func(p netip.Prefix, a netip.Addr) bool { return p.Addr() == a })
		switch {
		case len(answer.Addresses) == 0:
		case !ofPrefix(netip.Prefix.Contains):
			r.problem(subjectNetwork, "configure the nodes with an address of their own network", "%s\nno node of this network reaches that address", text)
			return ""
		case c.here && !own && isPeer(state, answer.Addresses):
			r.ok(subjectNetwork, "%s\nthat is the active gateway of the pair", text)
			return here
		case c.here && !own:
			r.warn(subjectNetwork, adviceOtherGateway, "%s\nthat is another machine: nodes may call it instead of this one", text)
			return here
		case c.here && port != c.Port:
			r.problem(subjectNetwork, "sudo systemctl restart monitor-gateway", "%s\nthe gateway should be on port %d", text, c.Port)
			return here
		}
	}
	to := netip.AddrPortFrom(addresses[0], uint16(port)) //nolint:gosec // a port, from 1 to 65535
	err := discover.Connect(ctx, to)
	switch {
	case !complete:
		r.problem(subjectNetwork, remedy, "%s", text)
	case err != nil:
		r.problem(subjectNetwork, adviceConnect(err, to), "%s\nbut no node can connect: %v", text, err)
	default:
		r.ok(subjectNetwork, "%s\na connection to %s succeeds", text, to)
	}
	return "http://" + to.String()
}

// adviceConnect says what to do if the name is right but the address cannot be reached.
func adviceConnect(err error, to netip.AddrPort) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "start the gateway there: sudo systemctl start monitor-gateway"
	}
	return fmt.Sprintf("let a firewall at %s pass TCP port %d in, and look at the cable and switches on the way", to.Addr(), to.Port())
}

// isPeer reports whether addresses are those of the other gateway of a pair.
func isPeer(state announce.State, addresses []netip.Addr) bool {
	return slices.ContainsFunc(state.Links, func(l announce.LinkState) bool {
		return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return slices.Contains(l.Peers, a.String()) })
	})
}

// conclude says which address to configure if multicast is blocked.
func (c Config) conclude(r *Report, urls []string) {
	switch {
	case len(urls) > 0 && c.here:
		r.Advice = "Nodes that multicast does not reach are to be configured with " + strings.Join(urls, " or ") + ".\n" +
			"What this machine hears of itself says nothing about the way to them: run\n" +
			"\"monitor-gateway doctor -network\" on a laptop where they are."
	case len(urls) > 0:
		r.Advice = "A node here calls " + strings.Join(urls, " or ") + "."
	case c.here || r.err(Warning) == nil:
		r.problem(subjectNetwork, "check cable, wireless network and DHCP; the gateway picks an address up by itself", "no interface has an IPv4 address that nodes could call")
	}
}

func (c Config) url(of netip.Addr) string {
	return "http://" + netip.AddrPortFrom(of, uint16(c.Port)).String() //nolint:gosec // a port, from 1 to 65535
}

func listed(prefixes []netip.Prefix) string {
	words := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, " and ")
}
