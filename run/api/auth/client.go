package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Clients finds the address that a request comes from: password slots are shared
// fairly among addresses.
//
// Behind a proxy, only the header that the proxy extends shows it. According to its
// documentation, Google's load balancer sends
// (https://cloud.google.com/load-balancing/docs/https#x-forwarded-for_header):
//
//	X-Forwarded-For: <supplied-value>,<client-ip>,<load-balancer-ip>
//
// It does not verify the supplied value, which may be anything. Cloud Run's own front
// end adds the address that it sees in the same way. So the header of a request to the
// run.app address ends in <client-ip>, and that of a request through the load balancer
// has been seen to end in <client-ip>,<load-balancer-ip>,<client-ip>
// (https://github.com/kubernetes/registry.k8s.io/pull/61).
//
// The client's place is therefore not fixed. It is the first address from the right that
// is not one of our proxies.
type Clients struct {
	// peer says that every connection comes from one of our proxies: on Cloud Run only
	// Google's front end can connect.
	peer    bool
	proxies []netip.Prefix
}

// trustPeer is the word for [Clients.peer] among the addresses.
const trustPeer = "peer"

// NewClients takes TRUSTED_PROXIES: addresses and ranges of addresses, and the
// word peer.
func NewClients(trusted []string) (Clients, error) {
	var c Clients
	for _, proxy := range trusted {
		proxy = strings.TrimSpace(proxy)
		if proxy == trustPeer {
			c.peer = true
			continue
		}
		if address, err := netip.ParseAddr(proxy); err == nil {
			c.proxies = append(c.proxies, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		addresses, err := netip.ParsePrefix(proxy)
		if err != nil {
			return Clients{}, fmt.Errorf("TRUSTED_PROXIES: %q is no address, range of addresses or %q", proxy, trustPeer)
		}
		c.proxies = append(c.proxies, addresses)
	}
	return c, nil
}

func (c Clients) proxy(address netip.Addr) bool {
	return slices.ContainsFunc(c.proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// of returns the client of a request: an IPv4 address, or the 64 bits of an IPv6 address
// that a provider gives to one customer.
func (c Clients) of(r *http.Request) netip.Prefix {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // invalid for a test's recorder: everybody is one client
	address := peer.Addr().Unmap().WithZone("")
	if c.peer || c.proxy(address) {
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for _, hop := range slices.Backward(hops) {
			before, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil {
				break // none of our proxies writes that
			}
			address = before.Unmap().WithZone("")
			if !c.proxy(address) {
				break
			}
		}
	}
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	client, _ := address.Prefix(bits)
	return client
}

type clientKey struct{}

// Identify puts the client's address into the context of each request, for [Client].
func (c Clients) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, c.of(r))))
	})
}

// Client returns the client's address.
func Client(ctx context.Context) netip.Prefix {
	client, _ := ctx.Value(clientKey{}).(netip.Prefix)
	return client
}

// Bounds of guessing: how many unknown codes a client may try at once, and how often one more.
// A code has 100 random bits or more; the bound protects the database from guesses.
const (
	GuessEvery = 6 * time.Second
	guessBurst = 10
	maxClients = 10_000 // whose guesses are counted, in about 2 MB
)

// Guesses counts the unknown codes of each client, in this instance. A code counts once it is
// known to be wrong: right ones never count, however many are tried at once. Concurrent guesses
// all count, and lengthen the wait.
type Guesses struct {
	mutex   sync.Mutex
	clients *simplelru.LRU[netip.Prefix, *rate.Limiter]
}

// Wait returns how long a client must wait before it may try another code.
func (g *Guesses) Wait(client netip.Prefix, now time.Time) time.Duration {
	missing := 1 - g.limiter(client).TokensAt(now)
	return max(0, time.Duration(missing*float64(GuessEvery)))
}

// Count counts an unknown code.
func (g *Guesses) Count(client netip.Prefix, now time.Time) {
	g.limiter(client).ReserveN(now, 1)
}

func (g *Guesses) limiter(client netip.Prefix) *rate.Limiter {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.clients == nil {
		clients, err := simplelru.NewLRU[netip.Prefix, *rate.Limiter](maxClients, nil)
		if err != nil {
			panic(err) // only of a size below one
		}
		g.clients = clients
	}
	limiter, ok := g.clients.Get(client)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(GuessEvery), guessBurst)
		g.clients.Add(client, limiter)
	}
	return limiter
}
