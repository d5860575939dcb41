package anomaly

import (
	"math"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/shared/features"
)

// Hours bounds the hours of a node that a calibration is made from: four weeks.
const Hours = 28 * 24

// Hour is the largest strength of each statistic in an hour of a node; NaN if there was none.
type Hour [Count]float32

// Quiet is an hour in which nothing was heard.
func Quiet() Hour {
	var h Hour
	for i := range h {
		h[i] = float32(math.NaN())
	}
	return h
}

// Silent reports whether the hour has no reading that can be judged.
func (h *Hour) Silent() bool {
	return !slices.ContainsFunc(h[:], func(s float32) bool { return !math.IsNaN(float64(s)) })
}

// Add includes a reading's statistics.
func (h *Hour) Add(v Values) {
	for i, s := range v.strength() {
		h[i] = larger(h[i], s)
	}
}

// NodeHours is a node's past for calibration: its healthy hours (see [Healthy]), at most [Hours], in any order.
type NodeHours struct {
	Node, Room string
	Hours      []Hour
	At         []uint8    // their hours of the day, UTC
	Air        []Climate  // of the same hours, in the order of time
	Instrument Instrument // the present one
	Neighbours []string   // of the customer's nodes, the best first, see [Neighbours]
}

// usual is what is usual for a node: the median of its hours, the distance from it to their
// 90th percentile, and the limits of its air. Its fields are encoded in their order.
type usual struct {
	Middle, Scale [Count]float32
	Air           limits
	Instrument    Instrument
}

// tailShare is the share of hours in the exponential tail.
const tailShare = 0.02

// shares are the upper quantiles that a tail keeps.
func shares() [12]float64 {
	return [12]float64{0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, tailShare}
}

// tail is a distribution: empirical down to one in fifty, exponential beyond.
type tail struct {
	Ranks  [12]float64 // exceeded by the shares
	Excess float64     // mean excess over the last of them
}

// surprise returns -log₁₀ of the share of hours that reach z.
func (t tail) surprise(z float64) float64 {
	share := shares()
	last := len(share) - 1
	if z >= t.Ranks[last] {
		return logShare(tailShare) + (z-t.Ranks[last])/(t.Excess*math.Ln10)
	}
	at, _ := slices.BinarySearch(t.Ranks[:], z)
	if at == 0 {
		return logShare(share[0])
	}
	low, high := logShare(share[at-1]), logShare(share[at])
	return low + (high-low)*(z-t.Ranks[at-1])/(t.Ranks[at]-t.Ranks[at-1])
}

func logShare(p float64) float64 { return -math.Log(p) / math.Ln10 }

// Calibration says what is usual for a customer's nodes, and which nodes are neighbours. It
// is made once a day and never changed. TestMemoryOfCalibration says what it takes.
type Calibration struct {
	nodes      map[string]usual
	rooms      map[string]usual
	fleet      usual
	rhythm     [Count][hoursOfDay]float32 // how much larger z is at an hour of the day
	tails      [Count]tail
	all        tail
	neighbours map[string][]string // its strings are those of nodes
}

// Neighbours are the nodes that a node is compared with, the best first.
func (c *Calibration) Neighbours(node string) []string { return c.neighbours[node] }

// enough is the number of node-hours that a customer's own tails need. With fewer, the
// shipped tails count for the rest.
const enough = 1000

const (
	hoursOfDay   = 24
	hoursOfWeek  = 7 * hoursOfDay
	hoursOfMonth = 30 * hoursOfDay
)

// minHours is the fewest hours of a statistic that give a node a median.
const minHours = 24

// Calibrate makes a calibration from the past of a customer's nodes. An entry without a node name
// is the air of a room. Without nodes the result is the shipped calibration.
func Calibrate(past []NodeHours) *Calibration {
	past = slices.SortedStableFunc(slices.Values(past), func(a, b NodeHours) int { return strings.Compare(a.Node, b.Node) })
	rooms := map[string][]Climate{}
	for ; len(past) > 0 && past[0].Node == ""; past = past[1:] {
		rooms[past[0].Room] = past[0].Air
	}
	shipped := shipped()
	c := &Calibration{nodes: map[string]usual{}, rooms: map[string]usual{}, fleet: shipped.fleet, rhythm: shipped.rhythm}
	c.fleet.Air = limitsOf(nil, beyondPast, 0)
	for s := range Count {
		c.usual(s, past, shipped.fleet)
		c.tails[s] = tailOf(c.byHour(s, past), shipped.tails[s])
	}
	var pooled []float64
	for _, n := range past {
		u := c.nodes[n.Node]
		for i, h := range n.Hours {
			if most, _ := c.most(u, int(n.At[i]), h); most > 0 {
				pooled = append(pooled, most)
			}
		}
	}
	c.all = tailOf(pooled, shipped.all)
	c.air(past, rooms)
	c.neighbours = make(map[string][]string, len(past))
	unknown := func(name string) bool { _, ok := c.nodes[name]; return !ok }
	for _, n := range past {
		c.neighbours[n.Node] = slices.DeleteFunc(slices.Clone(n.Neighbours[:min(len(n.Neighbours), MaxNeighbours)]), unknown)
	}
	return c
}

// youngQuantile is the quantile of the fleet that stands for a node until a day of it is known, and partly
// until a week is: otherwise a restless or coarse sensor would raise alarms from its first hour.
const youngQuantile = 0.9

// usual finds what is usual for one statistic: of each node as far as its hours show it, and
// for the rest of its room, or of the fleet for a room without such nodes.
func (c *Calibration) usual(s Statistic, past []NodeHours, shipped usual) {
	type own struct{ n, middle, scale float64 } // n hours; 0 if too few
	its := make([]own, len(past))
	rooms := map[string][]own{}
	var everybody []own
	for i, n := range past {
		var values []float64
		for _, h := range n.Hours {
			if v := float64(h[s]); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		if len(values) >= minHours {
			middle := features.Quantile(values, 0.5)
			its[i] = own{float64(len(values)), middle, features.Quantile(values, 0.9) - middle}
			rooms[n.Room], everybody = append(rooms[n.Room], its[i]), append(everybody, its[i])
		}
	}
	between := func(of []own, share float64, otherwise usual) (middle, scale float32) {
		if len(of) == 0 {
			return otherwise.Middle[s], otherwise.Scale[s]
		}
		var middles, scales []float64
		for _, o := range of {
			middles, scales = append(middles, o.middle), append(scales, o.scale)
		}
		return float32(features.Quantile(middles, share)), float32(features.Quantile(scales, share))
	}
	c.fleet.Middle[s], c.fleet.Scale[s] = between(everybody, youngQuantile, shipped)
	for i, n := range past {
		room, u := c.room(n.Room), c.nodes[n.Node]
		room.Middle[s], room.Scale[s] = between(rooms[n.Room], 0.5, c.fleet)
		c.rooms[n.Room] = room
		u.Middle[s], u.Scale[s] = room.Middle[s], room.Scale[s]
		if o := its[i]; o.n > 0 {
			w, young := o.n/(o.n+110), max(0, 1-o.n/hoursOfWeek)
			middle, scale := float64(c.fleet.Middle[s]), float64(room.Scale[s])
			scale += young * max(0, float64(c.fleet.Scale[s])-scale)
			u.Middle[s] = float32(o.middle + young*max(0, middle-o.middle))
			u.Scale[s] = float32(w*o.scale + (1-w)*scale)
		}
		c.nodes[n.Node] = u
	}
}

// rhythmHours is how many hours at an hour of the day give its rhythm a weight of one half.
const rhythmHours = 50

// byHour finds the rhythm of a statistic and returns all nodes' z without it. The rhythm is how much the
// 90th percentile of an hour of the day, or of a neighbouring hour, exceeds that of the whole day.
func (c *Calibration) byHour(s Statistic, past []NodeHours) (pooled []float64) {
	var hours [hoursOfDay][]float64
	for _, n := range past {
		u := c.nodes[n.Node]
		for i, h := range n.Hours {
			if v := float64(h[s]); !math.IsNaN(v) {
				hours[n.At[i]] = append(hours[n.At[i]], u.standardised(s, v))
			}
		}
	}
	var count, most [hoursOfDay]float64 // including the neighbouring hours
	all, mean := 0.0, 0.0
	for h, z := range hours {
		if len(z) == 0 {
			continue
		}
		n, high := float64(len(z)), features.Quantile(z, 0.9)
		all += n
		mean += (high - mean) * n / all
		for beside := range 3 {
			at := (h + hoursOfDay - 1 + beside) % hoursOfDay
			if count[at] == 0 || high > most[at] {
				most[at] = high
			}
			count[at] += n
		}
	}
	for h, z := range hours {
		its := float32(count[h] / (count[h] + rhythmHours) * (most[h] - mean))
		c.rhythm[s][h] = its + c.rhythm[s][h]*float32(1-min(1, all/enough))
		for _, v := range z {
			pooled = append(pooled, v-float64(c.rhythm[s][h]))
		}
	}
	return pooled
}

// air finds the limits of the air of each room and node. A node's slow changes are those of its
// difference from its room. One that has no room to compare with is its own room.
func (c *Calibration) air(past []NodeHours, rooms map[string][]Climate) {
	means := map[string]map[int64]float32{}
	for room, climates := range rooms {
		u := c.room(room)
		u.Air = limitsOf(climates, beyondPast, 0)
		u.Air.slow(climates, roomSpread)
		c.rooms[room] = u
		means[room] = map[int64]float32{}
		for _, h := range climates {
			if h.Count > 0 {
				means[room][h.Start.Unix()] = h.Mean
			}
		}
	}
	for _, n := range past {
		u := c.nodes[n.Node]
		room, spread, doubt := means[n.Room], nodeSpread, float32(0.5) // a door may open at any hour
		apart := slices.Clone(n.Air)
		if len(room) == 0 {
			spread, doubt = roomSpread, 0
		}
		for i, h := range apart {
			mean, ok := room[h.Start.Unix()]
			if apart[i].Mean -= mean; !ok && len(room) > 0 {
				apart[i].Count = 0
			}
		}
		u.Air = limitsOf(n.Air, beyondNode, doubt)
		u.Air.slow(apart, spread)
		u.Instrument = n.Instrument
		c.nodes[n.Node] = u
	}
}

// Anonymous returns the calibration without nodes and rooms, for shipping: an unknown place may
// be as restless as the most restless of these nodes in their most restless hour.
func (c *Calibration) Anonymous() *Calibration {
	a := &Calibration{fleet: c.fleet, tails: c.tails, all: c.all}
	for s, its := range c.rhythm {
		for h := range its {
			a.rhythm[s][h] = slices.Max(its[:])
		}
	}
	for _, u := range c.nodes {
		for s := range Count {
			a.fleet.Middle[s], a.fleet.Scale[s] = max(a.fleet.Middle[s], u.Middle[s]), max(a.fleet.Scale[s], u.Scale[s])
		}
	}
	return a
}

// spread is the scale of a statistic. That it is no smaller keeps a change of the last digit at a node
// that never changes from raising an alarm and, for [Unchanged], a few values equal by chance.
func (u usual) spread(s Statistic) float64 {
	if s == Unchanged {
		return max(0.3, float64(u.Scale[s]))
	}
	return max(0.05, float64(u.Scale[s]))
}

func (u usual) standardised(s Statistic, strength float64) float64 {
	return (strength - float64(u.Middle[s])) / u.spread(s)
}

// tailOf is the tail of pooled numbers. If these are few, the shipped tail has more weight.
func tailOf(values []float64, shipped tail) tail {
	if len(values) == 0 {
		return shipped
	}
	own := min(1, float64(len(values))/enough)
	mixed := func(its, shipped float64) float64 { return own*its + (1-own)*shipped }
	var t tail
	for i, share := range shares() {
		t.Ranks[i] = mixed(features.Quantile(values, 1-share), shipped.Ranks[i])
		if i > 0 { // keep ranks apart, so that every number has one place
			t.Ranks[i] = max(t.Ranks[i], t.Ranks[i-1]+1e-9)
		}
	}
	// The very largest numbers are unreported faults: their size does not count.
	limit := features.Quantile(values, 1-tailShare)
	largest := features.Quantile(values, 1-tailShare/censored)
	sum := 0.0
	for _, v := range values {
		sum += max(0, min(v, largest)-limit)
	}
	// Divided by the hours of the tail, not by those beyond its limit: in a statistic that is mostly 0 these are fewer.
	t.Excess = max(leastExcess, mixed(sum/(float64(len(values))*(tailShare-tailShare/censored)), shipped.Excess))
	return t
}

// One in censored of the tail's hours does not count by its size. With fewer, a fifth of wrong
// verdicts left enough faults in the past to hide half of the later ones.
const censored = 8

// leastExcess keeps equal numbers from making any other infinitely rare.
const leastExcess = 0.1

// most returns the largest surprise and its statistic. Changes of a node's own dew point count only
// if its neighbours' are unknown. Those of its own temperature serve only the band of charts: the
// cooling path judges them.
func (c *Calibration) most(u usual, hour int, strength Hour) (surprise float64, by Statistic) {
	alone := math.IsNaN(float64(strength[TemperatureChange] + strength[DewPointChange]))
	for s := range Count {
		if math.IsNaN(float64(strength[s])) || s == OwnTemperature1 || s == OwnTemperature2 || (s > OwnTemperature2 && !alone) {
			continue
		}
		if its := c.tails[s].surprise(u.standardised(s, float64(strength[s])) - float64(c.rhythm[s][hour])); its > surprise {
			surprise, by = its, s
		}
	}
	return surprise, by
}

// of is what is usual for a node; for one that is unknown, what is for its room.
func (c *Calibration) of(node, room string) usual {
	if u, ok := c.nodes[node]; ok {
		return u
	}
	return c.room(room)
}

// room is what is usual for a room; for one that is unknown, what is for the fleet.
func (c *Calibration) room(name string) usual {
	if u, ok := c.rooms[name]; ok {
		return u
	}
	return c.fleet
}

// Score is -log₁₀ of the share of the customer's healthy hours in which a reading is as
// unusual; 0 if the reading cannot be judged.
func (c *Calibration) Score(node, room string, at time.Time, v Values) float64 {
	most, _ := c.most(c.of(node, room), at.UTC().Hour(), v.worth())
	if most == 0 {
		return 0
	}
	return c.all.surprise(most)
}

// Alarm is the score above which a reading is an alarm, for a budget of false alarms per node
// and month, 0.3 to 30. Below 1 the score rests on the shape of the tail alone.
func Alarm(budget float64) float64 {
	return logShare(min(max(budget, 0.3), 30) / hoursOfMonth)
}
