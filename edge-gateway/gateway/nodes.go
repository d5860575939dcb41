package gateway

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// offlineAfter is how long a node may be silent and still count as online.
const offlineAfter = 5 * time.Minute

// evictInterval is how often, at most, a full table is searched for nodes that
// have gone.
const evictInterval = 10 * time.Second

// NodeInfo is a node as GET /api/v1/nodes shows it.
type NodeInfo struct {
	NodeID       string    `json:"node_id"`
	Address      string    `json:"ip_addr"`
	RegisteredAt time.Time `json:"registered_at"`
	LastSeen     time.Time `json:"last_seen"`
	Status       string    `json:"status"` // online or offline
}

// nodeTable holds every node that this process knows, up to capacity.
type nodeTable struct {
	capacity int
	seed     maphash.Seed

	mu    sync.Mutex
	known map[string]*nodeState
	// earlier holds what the outbox tells of nodes that this process has not
	// heard of yet.
	earlier   map[string]*window
	forgotten time.Time // when the table was last searched
	// changed says that a node was added or has another address.
	changed chan struct{}
}

// nodeState is one node of the table; the table's lock guards it.
type nodeState struct {
	address                string
	registeredAt, lastSeen time.Time
	heartbeat, reading     time.Time // the last ones
	window                 window
}

func newNodeTable(capacity int) *nodeTable {
	return &nodeTable{
		capacity: capacity, seed: maphash.MakeSeed(),
		known: map[string]*nodeState{}, earlier: map[string]*window{}, changed: make(chan struct{}, 1),
	}
}

func (n *nodeTable) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.known)
}

// register notes a node's address and says whether the node is new. One that is
// known keeps the time of its first registration.
func (n *nodeTable) register(id, address string, now time.Time) (isNew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, isNew := n.getOrCreate(id, address, now)
	if found.address != address {
		found.address = address
		n.tellChanged()
	}
	return isNew
}

// seen notes that a node is there.
func (n *nodeTable) seen(id, address string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.getOrCreate(id, address, now)
}

// beat notes a heartbeat of a node that has been seen.
func (n *nodeTable) beat(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[id]; ok {
		found.heartbeat = found.lastSeen
	}
}

// report returns the nodes that this process has heard a heartbeat or a reading of,
// the newest first.
func (n *nodeTable) report() []wire.StatusNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]wire.StatusNode, 0, len(n.known))
	for id, known := range n.known {
		if !known.heartbeat.IsZero() || !known.reading.IsZero() {
			found = append(found, wire.StatusNode{NodeID: id, LastHeartbeat: known.heartbeat, LastReading: known.reading})
		}
	}
	slices.SortFunc(found, func(a, b wire.StatusNode) int { return -n.known[a.NodeID].lastSeen.Compare(n.known[b.NodeID].lastSeen) })
	return found
}

// newest returns the newest measurement of each node that has sent one.
func (n *nodeTable) newest() map[string]windowEntry {
	n.mu.Lock()
	defer n.mu.Unlock()
	newest := make(map[string]windowEntry, len(n.known))
	for id, known := range n.known {
		if last := len(known.window.entries) - 1; last >= 0 {
			newest[id] = known.window.entries[last]
		}
	}
	return newest
}

// record notes a measurement and returns its time and what came before it, for
// which there is room.
func (n *nodeTable) record(id, address string, now time.Time, m measurement, scratch *windowBuffer) timedReading {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, _ := n.getOrCreate(id, address, now)
	found.reading = found.lastSeen
	return found.window.record(m, m.fingerprint(n.seed), now, scratch)
}

// markInOutbox notes that a reading of a node is in the outbox.
func (n *nodeTable) markInOutbox(id string, s timedReading) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[id]; ok {
		found.window.markInOutbox(s)
	}
}

// earlierThan returns what a record of a reading must tell of those before it.
func (n *nodeTable) earlierThan(id string, s timedReading) []outbox.Earlier {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[id]; ok {
		return found.window.earlierThan(s)
	}
	return nil
}

// restore notes a reading that an earlier process had put into the outbox.
func (n *nodeTable) restore(r outbox.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := r.Reading.NodeID
	found, ok := n.earlier[id]
	if known, is := n.known[id]; is {
		found, ok = &known.window, true
	}
	if !ok {
		if len(n.earlier) >= n.capacity {
			return
		}
		found = &window{}
		n.earlier[id] = found
	}
	m := measurement{id: r.Reading.MessageID, temperature: r.Reading.Temperature, humidity: r.Reading.Humidity}
	found.restore(r, m.fingerprint(n.seed))
}

// getOrCreate finds or makes a node; the lock is held.
func (n *nodeTable) getOrCreate(id, address string, now time.Time) (found *nodeState, isNew bool) {
	now = reading.TruncateTime(now)
	found, ok := n.known[id]
	if !ok {
		found = &nodeState{address: address, registeredAt: now}
		if len(n.known) >= n.capacity && now.Sub(n.forgotten).Abs() >= evictInterval {
			n.evictOffline(now)
		}
		if len(n.known) < n.capacity {
			n.add(id, found)
			n.tellChanged()
		}
	}
	found.lastSeen = now
	return found, !ok
}

func (n *nodeTable) add(id string, added *nodeState) {
	if earlier, ok := n.earlier[id]; ok {
		added.window = *earlier
		delete(n.earlier, id)
	}
	n.known[id] = added
}

func (n *nodeTable) tellChanged() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// remember adds a node that an earlier process knew.
func (n *nodeTable) remember(known NodeInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.known[known.NodeID]; !ok && len(n.known) < n.capacity {
		n.add(known.NodeID, &nodeState{address: known.Address, registeredAt: known.RegisteredAt, lastSeen: known.LastSeen})
	}
}

func (n *nodeTable) evictOffline(now time.Time) {
	n.forgotten = now
	for id, other := range n.known {
		if other.offline(now) {
			delete(n.known, id)
		}
	}
}

func (n *nodeState) offline(now time.Time) bool { return now.Sub(n.lastSeen) >= offlineAfter }

// list returns all nodes by their identifiers.
func (n *nodeTable) list(now time.Time) []NodeInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]NodeInfo, 0, len(n.known))
	for id, known := range n.known {
		status := "online"
		if known.offline(now) {
			status = "offline"
		}
		found = append(found, NodeInfo{
			NodeID: id, Address: known.address, RegisteredAt: known.registeredAt, LastSeen: known.lastSeen, Status: status,
		})
	}
	slices.SortFunc(found, func(a, b NodeInfo) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return found
}
