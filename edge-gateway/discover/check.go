package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/multicast"
)

// ErrWrongAddress says that another machine has the gateway's name.
var ErrWrongAddress = errors.New("another machine has the name")

// Timeouts like a node's.
const (
	askFor     = 4 * time.Second
	connectFor = 2 * time.Second
)

// Check does the same as a node on an interface: it asks for the address (A) of the
// specified name, and opens a new TCP connection to the answer. [Browse] must find no
// other address, unless it cannot ask there. The address must be one of own; nil for
// any.
func Check(ctx context.Context, i net.Interface, port int, own []netip.Addr) error {
	asking, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	answers := Ask(asking, i, Legacy, Browsing)
	addresses, browsed := answers[0].Addresses, answers[1]
	if err := answers[0].Err; err != nil {
		return err
	}
	if browsed.Service.Host == Host {
		addresses = append(addresses, browsed.Service.Address)
	} else if browsed.Err == nil || errors.Is(browsed.Err, ErrNotFound) {
		return fmt.Errorf("%s: the service of %s: %w", i.Name, Host, ErrNotFound)
	}
	for _, address := range addresses {
		if own != nil && !slices.Contains(own, address) {
			return fmt.Errorf("%s: %s is %s: %w", i.Name, Host, address, ErrWrongAddress)
		}
	}
	to := netip.AddrPortFrom(addresses[0], uint16(port)) //nolint:gosec // a port, from 1 to 65535
	if err := Connect(ctx, to); err != nil {
		return fmt.Errorf("%s: %s is %s: %w", i.Name, Host, addresses[0], err)
	}
	return nil
}

// Connect opens a fresh TCP connection, as a node does for each reading, and closes
// it.
func Connect(ctx context.Context, to netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: connectFor}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return conn.Close() //nolint:wrapcheck // nothing was sent
}

// CheckAll checks every interface in turn. It retries a failure once: a question may get lost, and
// the name may just have changed hands. active reports whether this gateway has the name, so that
// the address must be its own.
func CheckAll(ctx context.Context, port int, active func() bool) error {
	interfaces, err := Interfaces()
	if err == nil && len(interfaces) == 0 {
		return errors.New("no interface with multicast has an IPv4 address: no node finds the gateway by its name")
	}
	for _, i := range interfaces {
		for range 2 {
			var own []netip.Addr
			if active() {
				own = ownAddresses()
			}
			if err = Check(ctx, i, port, own); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return err
}

// ownAddresses are this machine's IPv4 addresses: hashicorp/mdns hears the answers
// of all interfaces.
func ownAddresses() []netip.Addr {
	own := []netip.Addr{}
	interfaces, _ := Interfaces()
	for _, i := range interfaces {
		for _, p := range multicast.Prefixes(i) {
			own = append(own, p.Addr())
		}
	}
	return own
}
