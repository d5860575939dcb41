package detect

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// Bounds of the cached rooms.
const (
	// RoomTTL bounds how long a cached room is served before it is refreshed.
	RoomTTL = 20 * time.Second
	// MaxNodes bounds the cached nodes; the least recently used rooms go first. A node takes about
	// 1.9 KB: all of them 194 MB.
	MaxNodes = 100_000
	// roomTimeout bounds a query about a room.
	roomTimeout = 3 * time.Second
	// comparedAtOnce is the most nodes of a room that are compared pairwise, once an hour, while
	// no calibration names neighbours.
	comparedAtOnce = 128
	// slotsPerHour and slotsPerDay count slots of ten minutes.
	slotsPerHour, slotsPerDay = 6, 144
)

// RoomStore is the part of the metadata database with rooms.
type RoomStore interface {
	RoomNodes(ctx context.Context, customerID, roomID int64, named []string) ([]reading.Node, error)
	NodesAir(ctx context.Context, customerID int64, nodes []reading.Node, from, until int64) ([]learning.NodeAir, error)
	RecordLearned(ctx context.Context, customerID int64, learned []learning.Learned, first float64) error
}

// roomCache holds each room's nodes, their newest readings and their last day. A room costs
// one query in [RoomTTL] instead of one per reading: 3 for 1,500 readings of a room in a
// minute (TestRoomIsAskedForOnceInTwentySeconds). The last slots are read each ten minutes,
// the whole day once an hour. One reading waits for the query; the others are judged by the
// room as it was before.
type roomCache struct {
	store RoomStore
	clock func() time.Time
	log   *slog.Logger

	mu    sync.Mutex
	rooms *simplelru.LRU[int64, *room]
	nodes int // in all rooms
	most  int // bounds nodes
}

// room is a cached room. The goroutine that queries the database holds refreshing; mu is held for
// microseconds.
type room struct {
	refreshing sync.Mutex

	mu        sync.Mutex
	known     bool // it has been read once
	queriedAt time.Time
	slot      int64 // the slot of that time
	nodes     map[reading.Node]*roomNode
	count     int // its share of the cache's nodes

	inside []*anomaly.Live // of nodes
	now    anomaly.Moves   // of most of them, at moved
	heard  int
	other  bool // most report at another interval
	moved  time.Time
}

// togetherFor is how long the changes of a room are those of now.
const togetherFor = 10 * time.Second

// together returns the change that most of the room's nodes share at a time, and how many nodes
// were heard. The caller holds mu.
func (r *room) together(at time.Time) (anomaly.Moves, int) {
	if at.Sub(r.moved).Abs() >= togetherFor {
		r.now, r.heard = anomaly.Together(at, r.inside)
		r.other = anomaly.OtherInterval(at, r.inside)
		r.moved = at
	}
	return r.now, r.heard
}

// enter adds a node that was put into the room since it was read. The caller holds mu.
func (r *room) enter(id reading.Node) *roomNode {
	n := &roomNode{inside: true}
	r.nodes[id] = n
	r.inside = append(r.inside, &n.Live)
	return n
}

// roomNode is a node of a room, or a neighbour in another.
type roomNode struct {
	anomaly.Live

	inside      bool
	temperature float64 // when it was heard
	humidity    float64
	neighbours  []*anomaly.Live // those in the room's cache

	width    anomaly.Width
	widening float64           // of the width since the database was updated
	newest   learning.JudgedBy // the basis of the newest reading
	judged   learning.JudgedBy // that of two in a row
	reported learning.JudgedBy // in the database
}

func newRoomCache(metadata RoomStore, clock func() time.Time, log *slog.Logger) *roomCache {
	s := &roomCache{store: metadata, clock: clock, log: log, most: MaxNodes}
	// The library refuses only sizes below 1.
	s.rooms, _ = simplelru.NewLRU(math.MaxInt, func(_ int64, r *room) { s.nodes -= r.count })
	return s
}

// room returns a room that is at most [RoomTTL] old, older while the database is unavailable. It
// reports false if the room was never read.
func (s *roomCache) room(ctx context.Context, sensor pipeline.SensorStatus, c *anomaly.Calibration) (*room, bool) {
	s.mu.Lock()
	r, ok := s.rooms.Get(sensor.RoomID)
	if !ok {
		r = &room{}
		s.rooms.Add(sensor.RoomID, r)
	}
	s.mu.Unlock()
	now := s.clock()
	r.mu.Lock()
	known, fresh := r.known, now.Sub(r.queriedAt) < RoomTTL
	r.mu.Unlock()
	switch {
	case fresh:
		return r, known
	case !known:
		r.refreshing.Lock() // the first readings of a room wait for it
	case !r.refreshing.TryLock():
		return r, true
	}
	defer r.refreshing.Unlock()
	r.mu.Lock()
	known, fresh = r.known, now.Sub(r.queriedAt) < RoomTTL
	r.mu.Unlock()
	if fresh {
		return r, known
	}
	if err := s.refresh(ctx, r, sensor, c, now); err != nil {
		s.log.ErrorContext(ctx, "cannot read the state of a room", "room_id", sensor.RoomID, "error", err.Error())
	}
	return r, r.known
}

// refresh reads a room from the database. The caller holds refreshing.
func (s *roomCache) refresh(ctx context.Context, r *room, sensor pipeline.SensorStatus, c *anomaly.Calibration, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roomTimeout)
	defer cancel()
	slot := anomaly.SlotOf(now)
	whole := !r.known || slot/slotsPerHour != r.slot/slotsPerHour
	r.mu.Lock()
	r.queriedAt = now // even if it fails: the next query is an interval later
	learned := r.unreported(slot != r.slot)
	ids := slices.Collect(maps.Keys(r.nodes))
	r.mu.Unlock()
	if len(learned) > 0 {
		if err := s.store.RecordLearned(ctx, sensor.CustomerID, learned, anomaly.FirstWidth); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, l := range learned { // keep it for the next write; if this one was committed after all, it counts twice
				if n := r.nodes[l.Node]; n != nil {
					n.widening, n.reported = n.widening+l.Wider, ""
				}
			}
			return err
		}
	}
	from := slot // of slots, none
	var placed []reading.Node
	if whole {
		var err error
		if placed, err = s.locate(ctx, sensor, c); err != nil {
			return err
		}
		ids = placed
		from = slot - slotsPerDay + 1
	} else if slot != r.slot {
		from = slot - 2
	}
	air, err := s.store.NodesAir(ctx, sensor.CustomerID, ids, from, slot)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if whole {
		r.replace(placed)
	}
	for _, a := range air {
		n := r.nodes[a.Node]
		n.update(a)
		n.inside = a.RoomID == sensor.RoomID // it may have moved since the room was read
	}
	r.inside = nil
	for _, n := range r.nodes {
		if n.inside {
			r.inside = append(r.inside, &n.Live)
		}
	}
	if whole {
		r.rank(placed, c, slot)
	}
	r.known, r.slot = true, slot
	count := len(r.nodes)
	r.mu.Unlock()
	s.count(sensor.RoomID, r, count)
	return nil
}

// locate returns the nodes of a room and their neighbours in other rooms.
func (s *roomCache) locate(ctx context.Context, sensor pipeline.SensorStatus, c *anomaly.Calibration) ([]reading.Node, error) {
	placed, err := s.store.RoomNodes(ctx, sensor.CustomerID, sensor.RoomID, nil)
	if err != nil {
		return nil, err
	}
	inside, named := map[string]bool{}, map[string]bool{}
	for _, n := range placed {
		inside[n.ID] = true
	}
	for _, n := range placed {
		for _, name := range c.Neighbours(n.ID) {
			if !inside[name] {
				named[name] = true
			}
		}
	}
	if len(named) == 0 {
		return placed, nil
	}
	return s.store.RoomNodes(ctx, sensor.CustomerID, sensor.RoomID, slices.Sorted(maps.Keys(named)))
}

// count records a room's number of nodes and evicts rooms while the cache is too large.
func (s *roomCache) count(roomID int64, r *room, nodes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cached, ok := s.rooms.Peek(roomID); !ok || cached != r { // it was dropped meanwhile
		return
	}
	s.nodes += nodes - r.count
	r.count = nodes
	for s.nodes > s.most && s.rooms.Len() > 1 {
		s.rooms.RemoveOldest()
	}
}

// unreported returns the learned values that the database lacks: those of nodes whose basis of
// judgement has changed and, with all, those of every node.
func (r *room) unreported(all bool) (learned []learning.Learned) {
	for id, n := range r.nodes {
		if n.judged != "" && (n.judged != n.reported || (all && n.widening != 0)) {
			learned = append(learned, learning.Learned{Node: id, Wider: n.widening, JudgedBy: n.judged})
			n.widening, n.reported = 0, n.judged
		}
	}
	return learned
}

// replace drops the nodes that have left, and clears the days of the others: a late
// reading may have changed any slot.
func (r *room) replace(placed []reading.Node) {
	before := r.nodes
	r.nodes = make(map[reading.Node]*roomNode, len(placed))
	for _, p := range placed {
		n := &roomNode{}
		if b, ok := before[p]; ok {
			n.widening, n.newest, n.judged, n.reported = b.widening, b.newest, b.judged, b.reported
			n.Follow(&b.Live)
		}
		r.nodes[p] = n
	}
}

func (n *roomNode) update(a learning.NodeAir) {
	n.Heard, n.temperature, n.humidity = a.At, a.Temperature, a.Humidity
	n.Now = anomaly.AirOf(a.Temperature, a.Humidity)
	n.width = anomaly.Width(a.Width)
	if n.widening != 0 {
		n.width = anomaly.Width(max(anomaly.Narrowest, anomaly.Width(a.Width).Factor()+n.widening))
	}
	n.reported = cmp.Or(n.reported, a.JudgedBy)
	for i, slot := range a.Slots {
		n.Day.Put(slot, anomaly.AirOf(a.Temperatures[i], a.Humidities[i]))
	}
}

// rank finds the neighbours of the room's nodes: those that the calibration names,
// else those of the room whose last day was most alike.
func (r *room) rank(placed []reading.Node, c *anomaly.Calibration, slot int64) {
	unnamed := map[reading.Node]bool{}
	for _, p := range placed {
		n := r.nodes[p]
		if !n.inside {
			continue
		}
		names := c.Neighbours(p.ID)
		if len(names) < anomaly.MinNeighbours {
			unnamed[p] = true
			continue
		}
		for _, name := range names {
			if other, ok := r.find(p.Channel, name); ok {
				n.neighbours = append(n.neighbours, &other.Live)
			}
		}
	}
	if len(unnamed) == 0 {
		return
	}
	all := slices.DeleteFunc(slices.Clone(placed), func(p reading.Node) bool { return !r.nodes[p].inside })
	for part := range slices.Chunk(all, comparedAtOnce) {
		days := make([]anomaly.Placed, len(part))
		for i, id := range part {
			days[i].Slots = make([]float32, 0, slotsPerDay)
			for at := slot - slotsPerDay + 1; at < slot; at++ {
				days[i].Slots = append(days[i].Slots, float32(r.nodes[id].Day.At(at).Temperature))
			}
		}
		for i, chosen := range anomaly.Neighbours(days) {
			if !unnamed[part[i]] {
				continue
			}
			n := r.nodes[part[i]]
			for _, other := range chosen {
				n.neighbours = append(n.neighbours, &r.nodes[part[other]].Live)
			}
		}
	}
}

// find returns the node with an id, preferably in the same channel.
func (r *room) find(channel reading.Channel, name string) (*roomNode, bool) {
	if n, ok := r.nodes[reading.Node{Channel: channel, ID: name}]; ok {
		return n, true
	}
	if channel != reading.Open {
		n, ok := r.nodes[reading.Node{ID: name}]
		return n, ok
	}
	for id, n := range r.nodes {
		if id.ID == name {
			return n, true
		}
	}
	return nil, false
}

// windowOf returns a window for a reading without one: the newest stored reading, unless
// that is older than a window may be.
func (n *roomNode) windowOf(r reading.Reading) reading.Window {
	age := r.Time.Sub(n.Heard).Seconds()
	if age <= 0 || age > reading.MaxWindowAge {
		return reading.Window{}
	}
	return reading.Window{
		Age: []float64{age}, Temperature: []float64{reading.Round(n.temperature)}, Humidity: []float64{reading.Round(n.humidity)},
	}
}

// learn updates the width of the node's intervals by a reading, and the basis of its
// judgement.
func (n *roomNode) learn(w reading.Window, r reading.Reading, by learning.JudgedBy) {
	width, _, known := n.width.Update(w, r)
	if known {
		n.widening += float64(width) - n.width.Factor()
		n.width = width
	}
	// One reading without a window, as after a restart of its gateway, does not change the basis.
	if by == n.newest || n.reported == "" {
		n.judged = by
	}
	n.newest = by
}
