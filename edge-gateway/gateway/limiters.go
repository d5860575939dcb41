package gateway

import (
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// limiters are the rate limiters of whoever calls. Nodes do not authenticate, so a
// node's limiter is that of its id at one address: who sends under another's id has a
// limiter of its own. And since ids can be invented, an address has one too, wide
// enough for a whole site behind it.
//
// Who has not called for the longest is forgotten when there are too many, and has
// its whole burst again: nobody can use that against others.
type limiters struct {
	nodes     *lru.Cache[caller, *rate.Limiter]
	addresses *lru.Cache[string, *rate.Limiter]
	node      allowance
	address   allowance
}

// caller is a node id at an address.
type caller struct{ id, address string }

// allowance is a rate in requests a second and how many may come at once.
type allowance struct {
	rate  float64 // 0 for any
	burst int
}

func (a allowance) limiter() *rate.Limiter {
	if a.rate <= 0 {
		return rate.NewLimiter(rate.Inf, a.burst)
	}
	return rate.NewLimiter(rate.Limit(a.rate), a.burst)
}

// maxAddresses is how many addresses have a limiter, as many as may be connected.
const maxAddresses = maxConnections

func newLimiters(nodes int, node, address allowance) *limiters {
	// The library refuses only sizes below 1.
	byNode, _ := lru.New[caller, *rate.Limiter](2 * nodes)
	byAddress, _ := lru.New[string, *rate.Limiter](maxAddresses)
	return &limiters{nodes: byNode, addresses: byAddress, node: node, address: address}
}

// of returns the limiters that a request must pass, in their order.
func (l *limiters) of(id, address string) [2]*rate.Limiter {
	return [2]*rate.Limiter{
		getOrAdd(l.addresses, address, l.address), getOrAdd(l.nodes, caller{id, address}, l.node),
	}
}

func getOrAdd[K comparable](of *lru.Cache[K, *rate.Limiter], key K, allowed allowance) *rate.Limiter {
	if found, ok := of.Get(key); ok {
		return found
	}
	added := allowed.limiter()
	if earlier, ok, _ := of.PeekOrAdd(key, added); ok {
		return earlier // another request was faster
	}
	return added
}
