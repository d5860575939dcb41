package auth

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

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
