package discover

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/mdns"

	"coldaisle.dev/edge-gateway/multicast"
)

const serviceType = "_http._tcp"

// The library waits for answers for all of this time, however early they come.
const browseTime = time.Second

// Browse looks on one interface for the service that gateways announce, until one has
// answered in full or the context ends; it may take [browseTime] longer.
// The error is [ErrNotFound] when nobody answered, another one when nobody could
// be asked.
//
// Properties of the library (v1.0.7):
//   - It asks once, and a question may get lost: Browse calls it repeatedly.
//   - It keeps writing into an entry that it has handed out until it returns:
//     entries are read afterwards, and no answer shortens the time.
//   - The end of the context closes its sockets, but does not make it return.
//   - It joins the group on the interface of the default route, not on the one that it
//     asks on, and fails on a Linux machine without a route for multicast, such as a
//     laptop that is connected to the gateway only.
//   - It treats every answer as one to its own question, even goodbyes and those that
//     reach the group from other interfaces; it does not say where an answer came
//     from, and keeps one address of several. The last two are why doctor judges
//     addresses by [Resolve].
//   - It needs a logger: otherwise it logs each packet that it cannot read to the
//     standard one.
func Browse(ctx context.Context, i net.Interface) (Gateway, error) {
	for ctx.Err() == nil {
		entries := make(chan *mdns.ServiceEntry, 64) // what comes beyond is dropped
		err := mdns.QueryContext(ctx, &mdns.QueryParam{
			Service: serviceType, Domain: "local", Timeout: browseTime, Interface: &i, Entries: entries, DisableIPv6: true,
			Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		})
		close(entries)
		if err != nil {
			return Gateway{}, fmt.Errorf("%s: browse: %w", i.Name, err)
		}
		var heard []*mdns.ServiceEntry
		for entry := range entries {
			heard = append(heard, entry)
		}
		if found, ok := gateway(heard); ok {
			return found, nil
		}
	}
	return Gateway{}, fmt.Errorf("%s: browse: %w", i.Name, ErrNotFound)
}

// gatewayName is that of an instance that is a gateway: the specified name, alone or with the
// end of a hardware address.
var gatewayName = regexp.MustCompile(`(?i)^` + multicast.Name + `(-[0-9a-f]{1,8})?$`)

// gateway returns the gateway among services, preferably the one with the specified name.
func gateway(services []*mdns.ServiceEntry) (found Gateway, ok bool) {
	var all []Gateway
	for _, s := range services {
		label, isHTTP := strings.CutSuffix(s.Name, "."+serviceType+".local.")
		address, isIPv4 := netip.AddrFromSlice(s.AddrV4)
		if isHTTP && isIPv4 && gatewayName.MatchString(label) && s.Port > 0 {
			all = append(all, Gateway{
				Instance: label, Host: strings.TrimSuffix(s.Host, "."), Address: address.Unmap(), Port: s.Port, Text: s.InfoFields,
			})
		}
	}
	if len(all) == 0 {
		return Gateway{}, false
	}
	return slices.MinFunc(all, func(a, b Gateway) int {
		return cmp.Or(cmp.Compare(len(a.Instance), len(b.Instance)), cmp.Compare(a.Instance, b.Instance))
	}), true
}
