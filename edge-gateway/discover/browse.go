package discover

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/mdns"
)

const serviceType = "_http._tcp"

// The library takes answers for all of the time, however early they come.
const browseTime = time.Second

// Browse looks on one interface for the service that gateways announce, until one has
// answered in full or the context ends; it may take [browseTime] longer.
// The error is [ErrNotFound] when nobody answered, another one when nobody could
// be asked.
//
// Properties of the library (v1.0.7):
//   - It asks once, and a question may get lost. So it is called again and again.
//   - It goes on writing into an entry that it has handed out, until it returns.
//     So entries are read afterwards, and no answer shortens the time.
//   - A context that ends closes its sockets, but does not make it return.
//   - It joins the group on the interface of the default route, not on the one that it
//     asks on, and fails on a Linux machine without a route for multicast:
//     a laptop at nothing but the gateway's cable has none.
//   - It takes every answer for one to its own question, also those that come to
//     the group from other interfaces, and goodbyes too; it does not say where an
//     answer came from, and keeps one address of several. The last two are why
//     doctor judges addresses by [Resolve].
//   - Without a logger it writes to the standard one each packet that it cannot
//     read; it must have one.
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

// gateway is the gateway among services: that with the plain name before those
// that had to take another.
func gateway(services []*mdns.ServiceEntry) (found Gateway, ok bool) {
	var all []Gateway
	for _, s := range services {
		label, isHTTP := strings.CutSuffix(s.Name, "."+serviceType+".local.")
		address, isIPv4 := netip.AddrFromSlice(s.AddrV4)
		if isHTTP && isIPv4 && isGatewayName(label) && s.Port > 0 {
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
