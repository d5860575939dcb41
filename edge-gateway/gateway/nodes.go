package gateway

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// offlineAfter is how long a node may be silent and still count as online.
const offlineAfter = 5 * time.Minute

// evictInterval is how often, at most, a full table is searched for offline nodes.
const evictInterval = 10 * time.Second

// maxReportedNames bounds the bytes of names in a report, so that it fits the API's limit. The
// API keeps the names that it has when a report leaves them out.
const maxReportedNames = 100_000

// NodeInfo is a node as GET /api/v1/nodes shows it.
type NodeInfo struct {
	NodeID       string    `json:"node_id"`
	Address      string    `json:"ip_addr"`
	RegisteredAt time.Time `json:"registered_at"`
	LastSeen     time.Time `json:"last_seen"`
	Status       string    `json:"status"` // online or offline
	// Source is the source of batches that brought the node; empty for one that called itself.
	Source string `json:"source,omitempty"`
	// Name is the source's suggestion.
	Name string `json:"name,omitempty"`
}

// nodeTable holds every node that this process knows, up to capacity.
type nodeTable struct {
	capacity int
	seed     maphash.Seed

	mu    sync.Mutex
	known map[string]*nodeState
	// earlier holds windows restored from the outbox for nodes that this process has not
	// heard yet.
	earlier   map[string]*window
	forgotten time.Time      // when the table was last searched
	brought   map[string]int // nodes by the source that brought them
	// changed is signaled when a node was added or has another address.
	changed chan struct{}
}

// nodeState is one node of the table; the table's lock guards it.
type nodeState struct {
	NodeInfo // without its status, which list adds

	heartbeat, reading time.Time // the last ones
	window             window
}

func newNodeTable(capacity int) *nodeTable {
	return &nodeTable{
		capacity: capacity, seed: maphash.MakeSeed(),
		known: map[string]*nodeState{}, earlier: map[string]*window{}, brought: map[string]int{}, changed: make(chan struct{}, 1),
	}
}

func (n *nodeTable) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.known)
}

// register stores a node's address. A known node keeps the time of its first registration.
func (n *nodeTable) register(id, address string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found := n.getOrCreate(id, address, now); found.Address != address {
		found.Address = address
		n.signalChange()
	}
}

func (n *nodeTable) beat(id, address string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.getOrCreate(id, address, now)
	found.heartbeat = found.LastSeen
}

// report returns the nodes that have sent this process a heartbeat or a reading, the
// newest first.
func (n *nodeTable) report() []wire.StatusNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]wire.StatusNode, 0, len(n.known))
	for id, known := range n.known {
		if !known.heartbeat.IsZero() || !known.reading.IsZero() {
			found = append(found, wire.StatusNode{NodeID: id, LastHeartbeat: known.heartbeat, LastReading: known.reading, Name: known.Name})
		}
	}
	slices.SortFunc(found, func(a, b wire.StatusNode) int { return -n.known[a.NodeID].LastSeen.Compare(n.known[b.NodeID].LastSeen) })
	room := maxReportedNames
	for i := range found {
		encoded, _ := json.Marshal(found[i].Name) // of a string
		if room -= len(encoded); room < 0 {
			found[i].Name = ""
		}
	}
	return found
}

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

// record dates a measurement that is age old, adds it to the node's window, and returns the
// window before it.
func (n *nodeTable) record(r reading.Reading, age time.Duration, address string, now time.Time) (timedReading, reading.Window) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.getOrCreate(r.NodeID, address, now)
	found.reading = found.LastSeen
	return found.window.record(r, age, fingerprint(n.seed, r), now)
}

func (n *nodeTable) mark(t timedReading, result outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[t.NodeID]; ok {
		found.window.mark(t, result)
	}
}

func (n *nodeTable) takeEarlier(t timedReading) []outbox.Earlier {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[t.NodeID]; ok {
		return found.window.takeEarlier(t)
	}
	return nil
}

// restore adds a reading that an earlier process stored in the outbox.
func (n *nodeTable) restore(r outbox.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := r.Reading.NodeID
	found := n.earlier[id]
	if known, ok := n.known[id]; ok {
		found = &known.window
	}
	if found == nil {
		if len(n.earlier) >= n.capacity {
			return
		}
		found = &window{}
		n.earlier[id] = found
	}
	found.restore(r, fingerprint(n.seed, r.Reading))
}

// getOrCreate finds or makes a node; the lock is held.
func (n *nodeTable) getOrCreate(id, address string, now time.Time) *nodeState {
	now = reading.TruncateTime(now)
	found, ok := n.known[id]
	if !ok {
		found = &nodeState{NodeInfo: NodeInfo{NodeID: id, Address: address, RegisteredAt: now}}
		if len(n.known) >= n.capacity && now.Sub(n.forgotten).Abs() >= evictInterval {
			n.forget(now, func(k *nodeState) bool { return k.offline(now) })
		}
		if len(n.known) < n.capacity {
			n.add(found)
			n.signalChange()
		}
	}
	found.LastSeen = now
	return found
}

func (n *nodeTable) add(added *nodeState) {
	if earlier, ok := n.earlier[added.NodeID]; ok {
		added.window = *earlier
		delete(n.earlier, added.NodeID)
	}
	n.known[added.NodeID] = added
}

func (n *nodeTable) signalChange() {
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
		n.add(&nodeState{NodeInfo: known})
		n.brought[known.Source]++
	}
}

// admit adds a node that a source brings, and reports whether it is known then. A source may
// bring up to limit nodes; those that it has not named for a day are forgotten if need be.
func (n *nodeTable) admit(id, name, source, address string, limit int, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.known[id]; ok {
		return true
	}
	if n.brought[source] >= limit && now.Sub(n.forgotten).Abs() >= evictInterval {
		n.forget(now, func(k *nodeState) bool { return k.Source == source && now.Sub(k.LastSeen).Abs() >= nodesRemembered })
	}
	if n.brought[source] >= limit {
		return false
	}
	n.getOrCreate(id, address, now)
	added, ok := n.known[id]
	if ok {
		added.Source, added.Name = source, name
		n.brought[source]++
	}
	return ok
}

func (n *nodeTable) broughtBy(source string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.brought[source]
}

// forget removes nodes; the lock is held.
func (n *nodeTable) forget(now time.Time, which func(*nodeState) bool) {
	n.forgotten = now
	for id, known := range n.known {
		if which(known) {
			n.brought[known.Source]--
			delete(n.known, id)
		}
	}
}

// offline compares times of a clock that may have been set back.
func (n *nodeState) offline(now time.Time) bool { return now.Sub(n.LastSeen).Abs() >= offlineAfter }

// list returns all nodes by their identifiers.
func (n *nodeTable) list(now time.Time) []NodeInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]NodeInfo, 0, len(n.known))
	for _, known := range n.known {
		info := known.NodeInfo
		info.Status = "online"
		if known.offline(now) {
			info.Status = "offline"
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(a, b NodeInfo) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return found
}
