package anomaly

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"coldaisle.dev/shared/portable"
)

// Hours is how many hours of a node are kept for calibration: four weeks.
const Hours = 28 * 24

// Hour is the largest strength of each statistic in an hour of a node; NaN where there
// was none. It is what remains of the readings.
type Hour [Count]float32

// Quiet is an hour in which nothing was heard.
func Quiet() Hour {
	var h Hour
	for i := range h {
		h[i] = float32(math.NaN())
	}
	return h
}

// Silent tells whether nothing was heard in the hour, or nothing that can be judged.
func (h *Hour) Silent() bool {
	return !slices.ContainsFunc(h[:], func(s float32) bool { return !math.IsNaN(float64(s)) })
}

// Add takes a reading's statistics into the hour.
func (h *Hour) Add(v Values) {
	for i, s := range v.strength() {
		if s := float32(s); !math.IsNaN(float64(s)) && !(h[i] >= s) {
			h[i] = s
		}
	}
}

// NodeHours is a node's past for calibration: its healthy hours, at most [Hours], in
// any order. What people judged right is left out of it, see [Healthy].
type NodeHours struct {
	Node, Room string
	Hours      []Hour
	Neighbours []string // of the customer's nodes, the best first, see [Neighbours]
}

// usual is what is usual for a node: the median of its hours and how far those lie from
// it that come once in ten.
type usual struct{ middle, scale [Count]float32 }

// The shares of an hour's distribution that are kept: a tenth is the scale, a fiftieth
// begins the tail.
const tailShare = 0.02

func shares() [12]float64 {
	return [12]float64{0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, tailShare}
}

// tail tells how rare a number is: by its rank down to one in fifty, beyond by an
// exponential tail.
type tail struct {
	Ranks  [12]float64 // numbers that the shares exceed
	Excess float64     // mean excess over the last of them
}

// surprise is -log₁₀ of the share of hours that come so far.
func (t tail) surprise(z float64) float64 {
	share := shares()
	last := len(share) - 1
	if z >= t.Ranks[last] {
		return logShare(tailShare) + (z-t.Ranks[last])/float64(t.Excess*math.Ln10)
	}
	at, _ := slices.BinarySearch(t.Ranks[:], z)
	if at == 0 {
		return logShare(share[0])
	}
	low, high := logShare(share[at-1]), logShare(share[at])
	return low + float64((high-low)*(z-t.Ranks[at-1])/(t.Ranks[at]-t.Ranks[at-1]))
}

// beyond is the number whose surprise is so much, at least 1.7.
func (t tail) beyond(surprise float64) float64 {
	return t.Ranks[len(t.Ranks)-1] + float64(max(0, surprise-logShare(tailShare))*float64(t.Excess*math.Ln10))
}

func logShare(p float64) float64 { return -portable.Log(p) / math.Ln10 }

// Calibration is what is usual at one customer, and whose neighbours their nodes are. It
// is made once a day and never changed. A node takes 96 bytes, its name and 16 bytes for
// each neighbour: 100,000 nodes about 47 MB.
type Calibration struct {
	nodes      map[string]usual
	rooms      map[string]usual
	fleet      usual
	tails      [Count]tail
	all        tail
	neighbours map[string][]string // shared with nobody, names shared with nodes
}

// Neighbours are the nodes that a node is compared with, the best first.
func (c *Calibration) Neighbours(node string) []string { return c.neighbours[node] }

// enough is how many node-hours the customer's own tails need: with fewer the shipped
// ones count as many as are missing.
const enough = 1000

// hoursOfWeek is the span that they need too: a weekend tells nothing of working days.
const hoursOfWeek = 7 * 24

// minHours is how many hours of a statistic a node needs to have a median.
const minHours = 24

// Calibrate makes a calibration of the past of a customer's nodes. Without any it is
// the shipped one.
func Calibrate(past []NodeHours) *Calibration {
	past = slices.Clone(past)
	slices.SortStableFunc(past, func(a, b NodeHours) int { return strings.Compare(a.Node, b.Node) })
	shipped := shipped()
	longest := 0
	for _, n := range past {
		longest = max(longest, len(n.Hours))
	}
	known := min(1, float64(longest)/hoursOfWeek)
	c := &Calibration{nodes: map[string]usual{}, rooms: map[string]usual{}, fleet: shipped.fleet}
	for s := range Count {
		c.usual(s, past, shipped.fleet)
		var pooled []float64
		for _, n := range past {
			u := c.nodes[n.Node]
			for _, h := range n.Hours {
				if v := h[s]; !math.IsNaN(float64(v)) {
					pooled = append(pooled, u.standardised(s, float64(v)))
				}
			}
		}
		c.tails[s] = tailOf(pooled, known, shipped.tails[s])
	}
	var pooled []float64
	for _, n := range past {
		u := c.nodes[n.Node]
		for _, h := range n.Hours {
			if most, _, _ := c.most(u, widen(h)); most > 0 {
				pooled = append(pooled, most)
			}
		}
	}
	c.all = tailOf(pooled, known, shipped.all)
	c.neighbours = make(map[string][]string, len(past))
	for _, n := range past {
		unknown := func(name string) bool { _, ok := c.nodes[name]; return !ok }
		c.neighbours[n.Node] = slices.DeleteFunc(slices.Clone(n.Neighbours[:min(len(n.Neighbours), MaxNeighbours)]), unknown)
	}
	return c
}

// sensors is the share of the fleet by which a node is judged before a day of it is known, and
// in part until a week is: restless ones, and those of coarse digits, would be alarmed from the
// first hour. Steps are judged by the median, so that a large one is told at once.
const sensors = 0.9

// usual finds what is usual for one statistic: of each node as far as its hours tell,
// for the rest of its room, of a room without such nodes the fleet.
func (c *Calibration) usual(s Statistic, past []NodeHours, shipped usual) {
	type own struct {
		n             float64
		middle, scale float64
	}
	its := make([]own, len(past))
	rooms := map[string][]int{}
	for i, n := range past {
		var values []float64
		for _, h := range n.Hours {
			if v := float64(h[s]); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		if its[i].n = float64(len(values)); len(values) >= minHours {
			its[i].middle = quantile(values, 0.5)
			its[i].scale = quantile(values, 0.9) - its[i].middle
			rooms[n.Room] = append(rooms[n.Room], i)
		}
	}
	between := func(of []int, share float64, otherwise usual) usual {
		if len(of) == 0 {
			return otherwise
		}
		var middles, scales []float64
		for _, i := range of {
			middles, scales = append(middles, its[i].middle), append(scales, its[i].scale)
		}
		slices.Sort(middles)
		slices.Sort(scales)
		otherwise.middle[s], otherwise.scale[s] = float32(quantile(middles, share)), float32(quantile(scales, share))
		return otherwise
	}
	var everybody []int
	for i := range past {
		if its[i].n >= minHours {
			everybody = append(everybody, i)
		}
	}
	share := sensors
	if s == TemperatureStep || s == HumidityStep {
		share = 0.5
	}
	c.fleet.middle[s], c.fleet.scale[s] = first(between(everybody, share, shipped), s)
	for i, n := range past {
		room, known := c.rooms[n.Room]
		if !known {
			room = c.fleet
		}
		room.middle[s], room.scale[s] = first(between(rooms[n.Room], 0.5, c.fleet), s)
		c.rooms[n.Room] = room
		u := c.nodes[n.Node]
		u.middle[s], u.scale[s] = room.middle[s], room.scale[s]
		if o := its[i]; o.n >= minHours {
			w, young := min(0.4, o.n/(o.n+110)), max(0, 1-o.n/hoursOfWeek)
			middle, scale := float64(c.fleet.middle[s]), float64(room.scale[s])
			scale += float64(young * max(0, float64(c.fleet.scale[s])-scale))
			u.middle[s] = float32(o.middle + float64(young*max(0, middle-o.middle)))
			u.scale[s] = float32(float64(w*o.scale) + float64((1-w)*scale))
		}
		c.nodes[n.Node] = u
	}
}

// Anonymous is the calibration without its nodes and rooms: what is shipped.
func (c *Calibration) Anonymous() *Calibration {
	return &Calibration{fleet: c.fleet, tails: c.tails, all: c.all}
}

func first(u usual, s Statistic) (middle, scale float32) { return u.middle[s], u.scale[s] }

// leastScale keeps a node that never changes from being alarmed by its last digit.
const leastScale = 0.05

func (u usual) standardised(s Statistic, strength float64) float64 {
	return (strength - float64(u.middle[s])) / max(leastScale, float64(u.scale[s]))
}

// quantile of ascending numbers, between neighbours in proportion.
func quantile(ascending []float64, q float64) float64 {
	place := float64(q * float64(len(ascending)-1))
	low := int(place)
	if low+1 >= len(ascending) {
		return ascending[len(ascending)-1]
	}
	return ascending[low] + float64((place-float64(low))*(ascending[low+1]-ascending[low]))
}

// tailOf is the tail of pooled numbers, of which few count less than the shipped tail, and
// none more than known.
func tailOf(values []float64, known float64, shipped tail) tail {
	if len(values) == 0 {
		return shipped
	}
	slices.Sort(values)
	own := min(known, float64(len(values))/enough)
	mixed := func(its, shipped float64) float64 { return float64(own*its) + float64((1-own)*shipped) }
	var t tail
	for i, share := range shares() {
		t.Ranks[i] = mixed(quantile(values, 1-share), shipped.Ranks[i])
		if i > 0 { // apart, so that every number has one place
			t.Ranks[i] = max(t.Ranks[i], t.Ranks[i-1]+1e-9)
		}
	}
	// The very largest numbers are faults that nobody reported: their size does not count.
	limit := quantile(values, 1-tailShare)
	largest := quantile(values, 1-tailShare/censored)
	sum, exceeding := 0.0, 0.0
	for _, v := range values {
		if v > limit {
			sum += min(v, largest) - limit
			if v <= largest {
				exceeding++
			}
		}
	}
	t.Excess = max(leastExcess, mixed(sum/max(1, exceeding), shipped.Excess))
	return t
}

// censored is the part of the tail's hours, one in so many, whose size does not count: with
// fewer, a fifth of wrong verdicts left enough faults in the past to hide half of the next.
const censored = 8

// leastExcess keeps numbers that are all the same from making any other infinitely rare.
const leastExcess = 0.1

func widen(h Hour) (s [Count]float64) {
	for i, v := range h {
		s[i] = float64(v)
	}
	return s
}

// most is the largest surprise of a statistic, and all of them.
func (c *Calibration) most(u usual, strength [Count]float64) (surprise float64, by Statistic, all [Count]float64) {
	for s := range Count {
		if math.IsNaN(strength[s]) {
			continue
		}
		all[s] = c.tails[s].surprise(u.standardised(s, strength[s]))
		if all[s] > surprise {
			surprise, by = all[s], s
		}
	}
	return surprise, by, all
}

func (c *Calibration) of(node, room string) usual {
	if u, ok := c.nodes[node]; ok {
		return u
	}
	if u, ok := c.rooms[room]; ok {
		return u
	}
	return c.fleet
}

// Score is -log₁₀ of the share of healthy hours of this customer in which a reading is
// so unusual. 0 means that nothing can be told.
func (c *Calibration) Score(node, room string, v Values) float64 {
	most, _, _ := c.most(c.of(node, room), v.strength())
	if most == 0 {
		return 0
	}
	return c.all.surprise(most)
}

// hoursOfMonth is how many hours a node sends in a month.
const hoursOfMonth = 720

// Alarm is the score above which a reading is an alarm, for so many false alarms per
// node and month. Budgets are 0.3 to 30; below 1 nothing but the shape of the tail tells.
func Alarm(budget float64) float64 {
	return logShare(cmp.Or(min(max(budget, 0.3), 30), 1) / hoursOfMonth)
}
