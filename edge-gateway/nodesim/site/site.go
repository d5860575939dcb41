// Package site simulates the measurements of a site's nodes over weeks and months: rooms
// that differ, their daily and weekly load, cooling that comes and goes, people opening
// doors, nodes of unequal sensors, with the faults of package fault on top. A
// measurement is a function of the seed and the time alone, so that any stretch of any
// node can be computed by itself. Simulated nodes (package nodesim) send them, and the
// evaluation of learning uses them.
package site

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
)

// Options say which site it is.
type Options struct {
	Seed    uint64
	Rooms   int
	PerRoom int // nodes of a room

	Interval time.Duration // between readings of a node; 0 means 30 s
	Loss     float64       // share of the readings that do not arrive, 0 to 1
	Jitter   time.Duration // by how much readings come late at most

	// Unlike makes a quarter of the nodes three times as restless and gives another
	// quarter sensors with steps of 0.5 °C and 1 %.
	Unlike bool

	// Laboratory makes restless rooms, heated and lit by the sun, whose nodes lose many readings,
	// instead of machine rooms.
	Laboratory bool
}

// Site is a simulated site. It never changes, so several goroutines may use it.
type Site struct {
	options Options
	rooms   []room
	nodes   []node
}

// room is what the nodes of a room have in common.
type room struct {
	key                            uint64
	level, dew                     float64 // °C
	daily, weekly, cycle, restless float64 // °C
	period                         float64 // seconds of a cycle of the cooling
	phase                          float64 // of the day, hours
	doors                          float64 // a working hour
}

// node is what a node has of its own.
type node struct {
	place                fault.Place
	room                 int
	key                  uint64
	rise, gain, door     float64 // °C above the room; of the room's changes; of a door's
	own                  float64 // °C, how much it wanders by itself
	noise, noiseHumidity float64 // °C, %
	humidityBias         float64 // %
	step, stepHumidity   float64 // of the values sent, °C and %
	loss                 float64 // share of its readings that do not arrive
	bench                bench
}

// New makes up a site.
func New(o Options) *Site {
	o.Interval = cmp.Or(o.Interval, 30*time.Second)
	s := &Site{options: o}
	for r := range o.Rooms {
		d := fault.Draws{Seed: o.Seed, Stream: uint64(r)}
		made := room{
			key: o.Seed<<16 ^ uint64(r), level: d.Between(19, 25), dew: d.Between(7, 12),
			daily: d.Between(0.2, 1.2), weekly: d.Between(0.1, 0.8), cycle: d.Between(0.05, 0.5), restless: d.Between(0.5, 1.3),
			period: d.Between(600, 2400), phase: d.Between(13, 17), doors: d.Between(0.1, 0.5),
		}
		s.rooms = append(s.rooms, made)
		for i := range o.PerRoom {
			number := uint64(len(s.nodes))
			d := fault.Draws{Seed: o.Seed, Stream: 1<<32 + number}
			n := node{
				place: fault.Place{Room: fmt.Sprintf("room%d", r+1), Node: fmt.Sprintf("room%d-node%d", r+1, i+1)},
				room:  r, key: o.Seed<<16 ^ 1<<40 ^ number,
				rise: d.Between(-1, 5), gain: d.Between(0.7, 1.2), door: d.Between(0.1, 1), own: d.Between(0.05, 0.2),
				noise: d.Between(0.02, 0.08), noiseHumidity: d.Between(0.05, 0.3), humidityBias: d.Between(-2, 2),
				step: 0.1, stepHumidity: 0.1, loss: o.Loss,
			}
			if d.Between(0, 1) < 0.5 {
				n.step, n.stepHumidity = 0.01, 0.01
			}
			if o.Laboratory {
				n.bench, n.step, n.stepHumidity, n.loss = benchOf(o.Seed, number), 0.01, 0.01, d.Between(leastLoss, mostLoss)
			}
			if o.Unlike {
				switch number % 4 {
				case 1:
					n.own, n.noise, n.noiseHumidity, n.door = 3*n.own, 3*n.noise, 3*n.noiseHumidity, 3*n.door
				case 3:
					n.step, n.stepHumidity = 0.5, 1
				}
			}
			s.nodes = append(s.nodes, n)
		}
	}
	return s
}

// Places names the nodes and their rooms, by number.
func (s *Site) Places() []fault.Place {
	places := make([]fault.Place, len(s.nodes))
	for i, n := range s.nodes {
		places[i] = n.place
	}
	return places
}

// air is the state of a room's air: by how much its temperature differs from its level,
// what a door does to it, and its dew point, in °C.
type air struct{ warmer, door, doorDew, dew float64 }

func (r room) at(t float64) air {
	hours := t / 3600
	days := math.Floor(hours / 24)
	hour := hours - 24*days
	busy := 0.0
	if working(days) {
		busy = bump(hour)
	}
	turn := t/r.period + 0.4*fault.Smooth(r.key, 1, hours/2)
	wave := math.Sin(2*math.Pi*turn) + 0.3*math.Sin(4*math.Pi*turn+1)
	a := air{
		warmer: r.daily*math.Cos(2*math.Pi*(hour-r.phase)/24)*(1+0.2*fault.Smooth(r.key, 2, days)) +
			r.weekly*busy + r.cycle*wave +
			r.restless*(0.08*fault.Smooth(r.key, 3, hours*3)+0.2*fault.Smooth(r.key, 4, hours/3)+0.3*fault.Smooth(r.key, 5, hours/20)+0.3*fault.Smooth(r.key, 6, hours/200)),
		dew: r.dew + 0.08*fault.Smooth(r.key, 7, hours) + 0.3*fault.Smooth(r.key, 8, hours/6) + 0.9*fault.Smooth(r.key, 9, hours/60),
	}
	a.door, a.doorDew = doors(r.key, t, r.doors*busy+0.002)
	return a
}

// working reports whether a day, counted from 1970-01-01, is not of a weekend.
func working(day float64) bool {
	weekday := math.Mod(day+4, 7) // that was a Thursday; 0 is Sunday
	return weekday != 0 && weekday != 6
}

// bump is 1 in working hours, 8 to 18, with an hour of change before and after.
func bump(hour float64) float64 {
	return 1 / (1 + math.Exp(-4*(hour-8))) / (1 + math.Exp(4*(hour-18)))
}

// doorSlot is the time, in seconds, in which a door is opened once or not at all, and
// doorLasts how long, in seconds, its air takes to mix.
const (
	doorSlot  = 1800.0
	doorLasts = 300.0
)

// doors is what the openings of the last hour still do.
func doors(key uint64, t, perHour float64) (warmer, dew float64) {
	slot := math.Floor(t / doorSlot)
	for _, k := range [2]float64{slot, slot - 1} {
		at := uint64(k)
		if fault.Uniform(key, 20, at) >= perHour*doorSlot/3600 {
			continue
		}
		since := t - (k+fault.Uniform(key, 21, at))*doorSlot
		if since < 0 {
			continue
		}
		left := math.Exp(-since/doorLasts) - math.Exp(-since/60)
		warmer += 1.2 * left * fault.Normal(key, 22, at)
		dew += 0.6 * left * fault.Normal(key, 23, at)
	}
	return warmer, dew
}

// exactly is what a node would measure without faults and without rounding to its steps.
func (s *Site) exactly(n node, at time.Time) fault.Values {
	nano := uint64(at.UnixNano())
	t := float64(at.UnixNano()) / 1e9
	if s.options.Laboratory {
		return s.laboratory(n, t, nano)
	}
	hours := t / 3600
	r := s.rooms[n.room]
	a := r.at(t)
	warmth := r.level + n.rise + n.gain*a.warmer + n.door*a.door +
		n.own*(0.4*fault.Smooth(n.key, 1, hours*4)+0.7*fault.Smooth(n.key, 2, hours/2)+fault.Smooth(n.key, 3, hours/24))
	dew := a.dew + n.door*a.doorDew + n.own*(0.3*fault.Smooth(n.key, 4, hours)+0.5*fault.Smooth(n.key, 5, hours/24))
	return fault.Values{
		Temperature: warmth + n.noise*fault.Normal(n.key, 6, nano),
		Humidity:    reading.RelativeHumidity(warmth, dew) + n.humidityBias + n.noiseHumidity*fault.Normal(n.key, 7, nano),
	}
}

func (n node) rounded(v fault.Values) fault.Values {
	return fault.Values{
		Temperature: reading.Round(math.Round(v.Temperature/n.step) * n.step),
		Humidity:    reading.Round(min(max(math.Round(v.Humidity/n.stepHumidity)*n.stepHumidity, reading.MinHumidity), reading.MaxHumidity)),
	}
}

// Measure returns what a node measures at a time, with its faults (of [fault.Of]).
func (s *Site) Measure(number int, at time.Time, faults []fault.Fault) fault.Values {
	n := s.nodes[number]
	return n.rounded(fault.Measure(faults, at, s.exactly(n, at), func(start time.Time) fault.Values { return s.exactly(n, start) }))
}

// Series is what arrives from a node with these faults of the site: From ≤ t < to.
func (s *Site) Series(number int, from, to time.Time, faults []fault.Fault) []reading.Reading {
	n := s.nodes[number]
	its := fault.Of(faults, n.place.Room, n.place.Node)
	rows := make([]reading.Reading, 0, to.Sub(from)/s.options.Interval+1)
	offset := time.Duration(fault.Uniform(n.key, 30, 0) * float64(s.options.Interval)).Truncate(time.Millisecond)
	var now []fault.Fault // those of the hour that ends at narrowed
	narrowed := time.Time{}
	for at := from.Truncate(s.options.Interval).Add(offset); at.Before(to); at = at.Add(s.options.Interval) {
		key := uint64(at.UnixNano())
		if !at.Before(narrowed) {
			narrowed = at.Add(time.Hour)
			now = slices.DeleteFunc(slices.Clone(its), func(f fault.Fault) bool {
				return !f.Start.Before(narrowed) || !at.Before(f.Settled())
			})
		}
		if at.Before(from) || fault.Uniform(n.key, 31, key) < n.loss {
			continue
		}
		late := time.Duration(fault.Uniform(n.key, 32, key) * float64(s.options.Jitter))
		v := s.Measure(number, at, now)
		rows = append(rows, reading.Reading{
			NodeID: n.place.Node, Time: at.Add(late).Truncate(time.Millisecond), Temperature: v.Temperature, Humidity: v.Humidity,
		})
	}
	return rows
}
