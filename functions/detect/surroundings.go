package detect

import (
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
	"coldaisle.dev/shared/store"
)

// Bounds of what is cached of rooms.
const (
	// RoomAge is how old what is known of a room may be, and how often it is asked for.
	RoomAge = 20 * time.Second
	// MaxNodes is how many nodes are cached, those of the rooms that were heard last. A
	// node takes about 1.6 KB: all of them 157 MB.
	MaxNodes = 100_000
	// roomTimeout bounds a query about a room.
	roomTimeout = 3 * time.Second
	// comparable is within how many nodes of a room neighbours are looked for while no
	// calibration names them: every pair of these is compared, once an hour.
	comparable = 128
	// slotsOfHour and slotsOfDay are how many slots of ten minutes there are.
	slotsOfHour, slotsOfDay = 6, 144
)

// LiveState is the metadata database.
type LiveState interface {
	RoomNodes(ctx context.Context, customerID, roomID int64, named []string) ([]store.RoomNode, error)
	NodesAir(ctx context.Context, nodes []reading.Node, from, until int64) ([]store.NodeAir, error)
	KeepLearned(ctx context.Context, learned []store.Learned, first float64) error
}

// surroundings caches what is known of rooms: the air and the last day of their nodes.
// A room costs one query in [RoomAge] however many readings come, one more in each ten
// minutes, and the whole day once an hour. One reading waits for it; the others are
// judged by what was known before.
type surroundings struct {
	live  LiveState
	clock func() time.Time
	log   *slog.Logger

	mu    sync.Mutex
	rooms *simplelru.LRU[int64, *room]
	nodes int // of all rooms
	most  int // nodes
}

// room is what is known of a room. Who asks the database holds asking; mu is held for
// microseconds.
type room struct {
	asking sync.Mutex

	mu    sync.Mutex
	known bool
	asked time.Time
	slot  int64 // at that time
	nodes map[reading.Node]*roomNode
	count int // of nodes, as the cache counts it
}

// roomNode is a node of a room, or a neighbour in another.
type roomNode struct {
	anomaly.Live

	inside      bool
	temperature float64 // when it was heard
	humidity    float64
	interval    float64         // s, usual between readings
	neighbours  []*anomaly.Live // those that the room knows

	width  anomaly.Width
	wider  float64 // what was added to the width since the database was told
	judged store.JudgedBy
	told   store.JudgedBy
}

func newSurroundings(live LiveState, clock func() time.Time, log *slog.Logger) *surroundings {
	s := &surroundings{live: live, clock: clock, log: log, most: MaxNodes}
	rooms, err := simplelru.NewLRU(math.MaxInt, func(_ int64, r *room) { s.nodes -= r.count })
	if err != nil {
		panic(err) // only of a size below one
	}
	s.rooms = rooms
	return s
}

// room returns what is known of a room, as new as it has to be; false while the database
// does not answer and nothing is known.
func (s *surroundings) room(ctx context.Context, sensor store.SensorStatus, c *anomaly.Calibration) (*room, bool) {
	s.mu.Lock()
	r, ok := s.rooms.Get(sensor.RoomID)
	if !ok {
		r = &room{}
		s.rooms.Add(sensor.RoomID, r)
	}
	s.mu.Unlock()
	now := s.clock()
	r.mu.Lock()
	known, fresh := r.known, now.Sub(r.asked) < RoomAge
	r.mu.Unlock()
	switch {
	case fresh:
		return r, known
	case !known:
		r.asking.Lock() // what nobody knows is waited for, by the first readings of a room
	case !r.asking.TryLock():
		return r, true
	}
	defer r.asking.Unlock()
	r.mu.Lock()
	known, fresh = r.known, now.Sub(r.asked) < RoomAge
	r.mu.Unlock()
	if fresh {
		return r, known
	}
	if err := s.refresh(ctx, r, sensor, c, now); err != nil {
		s.log.ErrorContext(ctx, "the state of a room cannot be read", "room_id", sensor.RoomID, "error", err.Error())
	}
	return r, r.known
}

// refresh asks for a room. The caller holds asking.
func (s *surroundings) refresh(ctx context.Context, r *room, sensor store.SensorStatus, c *anomaly.Calibration, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roomTimeout)
	defer cancel()
	slot := anomaly.SlotOf(now)
	whole := !r.known || slot/slotsOfHour != r.slot/slotsOfHour
	r.mu.Lock()
	r.asked = now // of an error too: the next question is an interval later
	learned := r.takeLearned(slot != r.slot)
	ids := make([]reading.Node, 0, len(r.nodes))
	for id := range r.nodes {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	if len(learned) > 0 {
		if err := s.live.KeepLearned(ctx, learned, anomaly.FirstWidth); err != nil {
			return err
		}
	}
	from := slot // of slots, none
	var placed []store.RoomNode
	if whole {
		var err error
		if placed, err = s.place(ctx, sensor, c); err != nil {
			return err
		}
		ids = ids[:0]
		for _, n := range placed {
			ids = append(ids, n.Node)
		}
		from = slot - slotsOfDay + 1
	} else if slot != r.slot {
		from = slot - 2
	}
	air, err := s.live.NodesAir(ctx, ids, from, slot)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if whole {
		r.replace(placed, sensor.RoomID)
	}
	for _, a := range air {
		r.nodes[a.Node].take(a)
	}
	if whole {
		r.choose(placed, c, slot)
	}
	r.known, r.slot = true, slot
	count := len(r.nodes)
	r.mu.Unlock()
	s.count(sensor.RoomID, r, count)
	return nil
}

// place returns the nodes of a room and their neighbours in other rooms.
func (s *surroundings) place(ctx context.Context, sensor store.SensorStatus, c *anomaly.Calibration) ([]store.RoomNode, error) {
	placed, err := s.live.RoomNodes(ctx, sensor.CustomerID, sensor.RoomID, nil)
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
	return s.live.RoomNodes(ctx, sensor.CustomerID, sensor.RoomID, slices.Sorted(maps.Keys(named)))
}

// count bounds the cache.
func (s *surroundings) count(roomID int64, r *room, nodes int) {
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

// takeLearned returns what the database has not been told: at once of nodes that are
// judged in another way than before, each ten minutes of the others.
func (r *room) takeLearned(all bool) (learned []store.Learned) {
	for id, n := range r.nodes {
		if n.judged != "" && (n.judged != n.told || (all && n.wider != 0)) {
			learned = append(learned, store.Learned{Node: id, Wider: n.wider, JudgedBy: n.judged})
			n.wider, n.told = 0, n.judged
		}
	}
	return learned
}

// replace keeps the nodes that are still there, and begins their days anew: a late
// reading may have changed any slot.
func (r *room) replace(placed []store.RoomNode, roomID int64) {
	before := r.nodes
	r.nodes = make(map[reading.Node]*roomNode, len(placed))
	for _, p := range placed {
		n := &roomNode{}
		if b, ok := before[p.Node]; ok {
			n.wider, n.judged, n.told = b.wider, b.judged, b.told
		}
		n.inside = p.RoomID == roomID
		r.nodes[p.Node] = n
	}
}

func (n *roomNode) take(a store.NodeAir) {
	n.Heard, n.temperature, n.humidity, n.interval = a.At, a.Temperature, a.Humidity, a.Interval
	n.Now = anomaly.AirOf(a.Temperature, a.Humidity)
	n.width = anomaly.Width(a.Width)
	if n.wider != 0 {
		n.width = anomaly.Width(max(anomaly.Narrowest, orFirst(a.Width)+n.wider))
	}
	if n.told == "" {
		n.told = a.JudgedBy
	}
	for _, s := range a.Slots {
		n.Day.Put(s.Slot, anomaly.AirOf(s.Temperature, s.Humidity))
	}
}

func orFirst(width float64) float64 {
	if width == 0 {
		return anomaly.FirstWidth
	}
	return width
}

// choose finds the neighbours of the room's nodes: those that the calibration names,
// else those of the room whose last day was most alike.
func (r *room) choose(placed []store.RoomNode, c *anomaly.Calibration, slot int64) {
	unnamed := map[reading.Node]bool{}
	for _, p := range placed {
		n := r.nodes[p.Node]
		if !n.inside {
			continue
		}
		names := c.Neighbours(p.ID)
		if len(names) < anomaly.MinNeighbours {
			unnamed[p.Node] = true
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
	var all []reading.Node
	for _, p := range placed {
		if r.nodes[p.Node].inside {
			all = append(all, p.Node)
		}
	}
	for part := range slices.Chunk(all, comparable) {
		days := make([]anomaly.Placed, len(part))
		for i, id := range part {
			days[i].Slots = make([]float32, 0, slotsOfDay)
			for at := slot - slotsOfDay + 1; at < slot; at++ {
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

// find returns the node of a name: of the same channel if there is one.
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

// windowOf is the window of a reading that came without one: the newest reading that
// ingest has kept, if it is not older than a window may be.
func (n *roomNode) windowOf(r reading.Reading) reading.Window {
	age := r.Time.Sub(n.Heard).Seconds()
	if age <= 0 || age > reading.MaxWindowAge {
		return reading.Window{}
	}
	return reading.Window{
		Age: []float64{reading.RoundAge(age)}, Temperature: []float64{reading.Round(n.temperature)}, Humidity: []float64{reading.Round(n.humidity)},
	}
}

// learn keeps what a reading teaches of the width of the node's intervals, and by what
// it was judged.
func (n *roomNode) learn(w reading.Window, r reading.Reading, by store.JudgedBy) {
	wider, _, known := n.width.Update(w, r)
	if known {
		n.wider += float64(wider) - orFirst(float64(n.width))
		n.width = wider
	}
	n.judged = by
}
