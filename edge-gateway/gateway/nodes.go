package gateway

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/shared/reading"
)

// offlineAfter is how long a node may be silent and still count as online.
const offlineAfter = 5 * time.Minute

// maxNodes bounds memory: some 60 MB of windows. Nodes beyond it are served
// and not remembered.
const maxNodes = 10_000

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
	mu    sync.Mutex
	known map[string]*node
}

// node is one of them; its registry's lock guards it.
type node struct {
	address                string
	registeredAt, lastSeen time.Time
	window                 window
}

func newNodes() *nodes { return &nodes{known: map[string]*node{}} }

func (n *nodes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.known)
}

// register notes a node's address. A node that is known keeps the time of its
// first registration.
func (n *nodes) register(id, address string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.visit(id, address, now).address = address
}

// seen notes that a node is alive, registering it where it is not known.
func (n *nodes) seen(id, address string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.visit(id, address, now)
}

// take notes a measurement and returns its time and what came before it. The
// time is now, or, for a measurement that was sent before, the time it had.
func (n *nodes) take(id, address string, now time.Time, m measurement) (time.Time, reading.Window) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.visit(id, address, now).window.take(m, now)
}

// visit finds or makes a node; the lock is held.
func (n *nodes) visit(id, address string, now time.Time) *node {
	now = reading.Instant(now)
	found, ok := n.known[id]
	if !ok {
		found = &node{address: address, registeredAt: now}
		if len(n.known) >= maxNodes {
			n.forgetOffline(now)
		}
		if len(n.known) < maxNodes {
			n.known[id] = found
		}
	}
	found.lastSeen = now
	return found
}

func (n *nodes) forgetOffline(now time.Time) {
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
