package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// caller is a node id at an address; an address alone has no id.
type caller struct{ id, address string }

// limiters holds a rate limiter for each node id at an address, and one for each address.
// Nodes do not authenticate: a device that sends under another's id uses up its own
// limiter. Ids can be invented, so an address has a limit too, wide enough for a site.
//
// The least recently used limiter is evicted when there are too many; its caller has the
// whole burst again, which harms nobody else.
type limiters struct {
	config *Config
	known  *lru.Cache[caller, *rate.Limiter]
}

func newLimiters(config *Config) limiters {
	known, _ := lru.New[caller, *rate.Limiter](2*config.MaxNodes + maxConnections) // the library refuses only sizes below 1
	return limiters{config, known}
}

func (l limiters) get(c caller) *rate.Limiter {
	if found, ok := l.known.Get(c); ok {
		return found
	}
	perSecond, burst := l.config.NodeRate, l.config.NodeBurst
	if c.id == "" {
		perSecond, burst = l.config.AddressRate, int(2*l.config.AddressRate)+1
	}
	limit := rate.Inf
	if perSecond > 0 {
		limit = rate.Limit(perSecond)
	}
	added := rate.NewLimiter(limit, burst)
	if earlier, ok, _ := l.known.PeekOrAdd(c, added); ok {
		return earlier // another request was faster
	}
	return added
}

// maxThrottleDelay is the longest that a request waits for each of its two rate limiters.
const maxThrottleDelay = time.Second

// throttle delays a request whose node, or address for an empty id, sends faster than its rate.
// A request that would wait longer than maxThrottleDelay is refused, after that delay: a node that
// floods the gateway is slowed down on every connection it has, and other nodes are not. throttle
// has written the answer when it returns false.
func (q *requests) throttle(w http.ResponseWriter, r *http.Request, nodeID string) bool {
	limiter := q.limiters.get(caller{nodeID, remote(r)})
	if limiter.Allow() || wait(r.Context(), limiter) {
		return true
	}
	if r.Context().Err() == nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(maxThrottleDelay.Seconds())))
		q.reject(w, r, nodeID, http.StatusTooManyRequests, "too_many", "Too many requests",
			fmt.Errorf("more than %g requests a second", float64(limiter.Limit())))
	}
	return false
}

// wait waits for a rate limiter and reports whether the request may go on: not when it
// would wait too long, nor when the node has gone.
func wait(ctx context.Context, limiter *rate.Limiter) bool {
	ctx, cancel := context.WithTimeout(ctx, maxThrottleDelay)
	defer cancel()
	if limiter.Wait(ctx) == nil {
		return true
	}
	<-ctx.Done()
	return false
}
