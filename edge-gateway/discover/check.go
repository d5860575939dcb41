package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
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
	return Connect(ctx, netip.AddrPortFrom(addresses[0], uint16(port))) //nolint:gosec // a port, from 1 to 65535
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

// Watcher checks for /health that nodes can find and reach a gateway.
type Watcher struct {
	Port   int
	Active func() bool // whether this gateway has the name, so that the address must be its own

	mu      sync.Mutex
	problem string
}

// Problem says why nodes could not reach a gateway at the last check; it is empty if they could.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Check checks every interface in turn. It retries a failure once: a question may get lost, and
// the name may just have changed hands.
func (w *Watcher) Check(ctx context.Context) error {
	problem := ""
	interfaces, err := Interfaces()
	for _, i := range interfaces {
		if err = w.check(ctx, i); err != nil {
			err = w.check(ctx, i)
		}
		if err != nil {
			problem = err.Error()
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = problem
	return err
}

func (w *Watcher) check(ctx context.Context, i net.Interface) error {
	var own []netip.Addr
	if w.Active() {
		own = ownAddresses()
	}
	return Check(ctx, i, w.Port, own)
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
