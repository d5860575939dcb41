package gateway

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"coldaisle.dev/shared/reading"
)

// offlineAfter is how long a node may be silent and still count as online.
const offlineAfter = 5 * time.Minute

// forgetEvery is how often, at most, a full table is searched for nodes that
// have gone.
const forgetEvery = 10 * time.Second

// Node is a node as GET /api/v1/nodes shows it.
type Node struct {
	NodeID       string    `json:"node_id"`
	Address      string    `json:"ip_addr"`
	RegisteredAt time.Time `json:"registered_at"`
	LastSeen     time.Time `json:"last_seen"`
	Status       string    `json:"status"` // online or offline
}

// nodes is every node that this process has heard of.
type nodes struct {
	capacity int
	seed     maphash.Seed
	rate     rate.Limit
	burst    int

	mu    sync.Mutex
	known map[string]*node
	// earlier holds what the outbox tells of nodes that this process has not
	// heard of yet.
	earlier map[string]*window
	// strangers is the turn that all nodes share for which there is no room.
	strangers *rate.Limiter
	forgotten time.Time // when the table was last searched
}

// node is one of them; the table's lock guards it.
type node struct {
	address                string
	registeredAt, lastSeen time.Time
	window                 window
	turn                   *rate.Limiter // nil where there is no room for the node
}

func newNodes(capacity int, perSecond float64, burst int) *nodes {
	n := &nodes{
		capacity: capacity, seed: maphash.MakeSeed(), rate: rate.Limit(perSecond), burst: burst,
		known: map[string]*node{}, earlier: map[string]*window{},
	}
	if perSecond <= 0 {
		n.rate = rate.Inf
	}
	n.strangers = rate.NewLimiter(n.rate, burst)
	return n
}

func (n *nodes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.known)
}

// register notes a node's address and says whether the node is new. One that is
// known keeps the time of its first registration.
func (n *nodes) register(id, address string, now time.Time) (isNew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, isNew := n.visit(id, address, now)
	found.address = address
	return isNew
}

// turn notes that a node is there and returns the limiter of its requests.
func (n *nodes) turn(id, address string, now time.Time) *rate.Limiter {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, _ := n.visit(id, address, now); found.turn != nil {
		return found.turn
	}
	return n.strangers
}

// take notes a measurement and returns its time and what came before it, for
// which there is room.
func (n *nodes) take(id, address string, now time.Time, m measurement, room *columns) stamped {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, _ := n.visit(id, address, now)
	return found.window.take(m, m.print(n.seed), now, room)
}

// keep notes that a reading of a node is in the outbox.
func (n *nodes) keep(id string, s stamped) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[id]; ok {
		found.window.keep(s)
	}
}

// restore notes a reading that an earlier process had put into the outbox.
func (n *nodes) restore(r reading.Reading) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.earlier[r.NodeID]
	if !ok {
		if len(n.earlier) >= n.capacity {
			return
		}
		found = &window{}
		n.earlier[r.NodeID] = found
	}
	m := measurement{id: r.MessageID, temperature: r.Temperature, humidity: r.Humidity}
	found.restore(m, m.print(n.seed), r.Time)
}

// visit finds or makes a node; the lock is held.
func (n *nodes) visit(id, address string, now time.Time) (found *node, isNew bool) {
	now = reading.TruncateTime(now)
	found, ok := n.known[id]
	if !ok {
		found = &node{address: address, registeredAt: now}
		if len(n.known) >= n.capacity && now.Sub(n.forgotten).Abs() >= forgetEvery {
			n.forgetOffline(now)
		}
		if len(n.known) < n.capacity {
			n.admit(id, found)
		}
	}
	found.lastSeen = now
	return found, !ok
}

func (n *nodes) admit(id string, newcomer *node) {
	newcomer.turn = rate.NewLimiter(n.rate, n.burst)
	if earlier, ok := n.earlier[id]; ok {
		newcomer.window = *earlier
		delete(n.earlier, id)
	}
	n.known[id] = newcomer
}

func (n *nodes) forgetOffline(now time.Time) {
	n.forgotten = now
	for id, other := range n.known {
		if other.offline(now) {
			delete(n.known, id)
		}
	}
}

func (n *node) offline(now time.Time) bool { return now.Sub(n.lastSeen) >= offlineAfter }

// list returns all nodes by their identifiers.
func (n *nodes) list(now time.Time) []Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]Node, 0, len(n.known))
	for id, known := range n.known {
		status := "online"
		if known.offline(now) {
			status = "offline"
		}
		found = append(found, Node{
			NodeID: id, Address: known.address, RegisteredAt: known.registeredAt, LastSeen: known.lastSeen, Status: status,
		})
	}
	slices.SortFunc(found, func(a, b Node) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return found
}
