package fault

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Place is a node and its room.
type Place struct{ Room, Node string }

// Plan says what to sow.
type Plan struct {
	Seed     uint64
	From, To time.Time
	Interval time.Duration // between readings, which a [Spike] lasts one to three of
	Scale    float64       // of all peaks; 0 means 1
	Rates    map[Kind]Rate // of one node, or with Room of one room, in 30 days
}

// Rate is how often a kind of fault comes.
type Rate struct {
	PerMonth float64       // in 30 days
	Room     bool          // whole rooms
	Lasts    time.Duration // fixed; 0 for the kind's own
}

// Ordinary returns each kind of fault twice in 30 days, at single nodes.
func Ordinary() map[Kind]Rate {
	rates := map[Kind]Rate{}
	for _, kind := range Kinds() {
		rates[kind] = Rate{PerMonth: 2}
	}
	return rates
}

// apart is the time between two faults of one node, so that each is found, or missed,
// by itself.
const apart = 3 * time.Hour

// Sow draws faults, those that come first in front. No two befall a node within three
// hours.
func Sow(p Plan, places []Place) []Fault {
	var sown []Fault
	months := p.To.Sub(p.From).Hours() / (30 * 24)
	for _, kind := range Kinds() {
		rate := p.Rates[kind]
		seen := map[Place]bool{}
		for _, place := range places {
			if rate.Room {
				place.Node = ""
			}
			if seen[place] {
				continue
			}
			seen[place] = true
			d := Draws{Seed: p.Seed, Stream: hash(place.Room + "/" + place.Node + "/" + string(kind))}
			count := int(math.Floor(rate.PerMonth*months + d.Next()))
			for range count {
				if f, ok := d.fault(p, kind, rate, place, sown); ok {
					sown = append(sown, f)
				}
			}
		}
	}
	slices.SortStableFunc(sown, func(a, b Fault) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Room, b.Room), cmp.Compare(a.Node, b.Node))
	})
	return sown
}

func (d *Draws) minutes(low, high float64) time.Duration {
	return time.Duration(d.Between(low, high) * float64(time.Minute)).Truncate(time.Second)
}

func (d *Draws) sign() float64 {
	if d.Next() < 0.5 {
		return -1
	}
	return 1
}

// fault draws one that comes near no other; false where there is no room left.
func (d *Draws) fault(p Plan, kind Kind, rate Rate, place Place, sown []Fault) (Fault, bool) {
	f, lasts := d.sized(p, kind)
	lasts = cmp.Or(rate.Lasts, lasts)
	f.Room, f.Node = place.Room, place.Node
	near := func(other Fault) bool {
		return f.Room == other.Room && (f.Node == other.Node || f.Node == "" || other.Node == "") && f.within(apart, other)
	}
	for range 100 {
		if d.begin(&f, p, lasts) && !slices.ContainsFunc(sown, near) {
			return f, true
		}
	}
	return Fault{}, false
}

// begin draws when a fault begins, and reports whether it fits into the plan's span.
func (d *Draws) begin(f *Fault, p Plan, lasts time.Duration) bool {
	free := p.To.Sub(p.From) - lasts
	f.Start = p.From.Add(time.Duration(d.Next() * float64(free))).Truncate(p.Interval)
	f.End = f.Start.Add(lasts)
	return free > 0
}

// within reports whether less than a gap is between two faults.
func (f Fault) within(gap time.Duration, other Fault) bool {
	return f.Start.Before(other.Settled().Add(gap)) && other.Start.Before(f.Settled().Add(gap))
}

// sized draws how large a fault is and how long it lasts. Peaks are of faults that a
// person at the chart would see; [Plan] scales them.
func (d *Draws) sized(p Plan, kind Kind) (f Fault, lasts time.Duration) {
	f = Fault{Kind: kind, Constant: d.minutes(20, 60)}
	scale := cmp.Or(p.Scale, 1)
	switch kind {
	case Spike:
		lasts = time.Duration(1+int(3*d.Next())) * p.Interval
		f.Peak, f.PeakHumidity = scale*d.sign()*d.Between(1, 4), scale*d.sign()*d.Between(3, 12)
	case Drift:
		lasts, f.Peak = d.minutes(120, 480), scale*d.sign()*d.Between(1, 3)
	case Stuck:
		lasts = d.minutes(20, 180)
	case Dropout:
		lasts = d.minutes(20, 90)
		f.Peak, f.PeakHumidity = -scale*d.Between(1, 6), -scale*d.Between(2, 10)
	case Noise:
		lasts = d.minutes(60, 240)
		f.Peak, f.PeakHumidity = scale*d.Between(0.2, 0.8), scale*d.Between(0.5, 2.5)
	case Leak:
		lasts, f.Peak = d.minutes(60, 300), scale*d.Between(1, 4)
	case Cooling:
		lasts, f.Peak = d.minutes(20, 90), scale*d.Between(1.5, 8)
	default:
	}
	return f, lasts
}

// onRecorded draws what only [OnRecorded] sows.
func (d *Draws) onRecorded(p Plan, kind Kind) (f Fault, lasts time.Duration) {
	f = Fault{Kind: kind, Constant: d.minutes(20, 60)}
	days := func(low, high float64) time.Duration { return d.minutes(1440*low, 1440*high) }
	switch kind {
	case Cooling: // begins with .02 to 2 °C a minute; half do not recover for hours
		f.Peak = min(20, 0.02*math.Pow(100, d.Next())*f.Constant.Minutes())
		if lasts = d.minutes(30, 120); d.Next() < 0.5 {
			lasts = d.minutes(360, 480)
		}
	case Step:
		lasts = d.minutes(60, 480)
		f.Peak, f.PeakHumidity = d.sign()*d.Between(1, 4), d.sign()*d.Between(2, 10)
	case Humidity:
		lasts, f.PeakHumidity = d.minutes(120, 480), d.sign()*d.Between(5, 20)
	case Oscillation:
		lasts, f.Peak, f.Constant = d.minutes(90, 240), d.Between(0.8, 3), d.minutes(6, 20)
	case Door:
		lasts, f.Peak, f.Constant = d.minutes(10, 40), d.sign()*d.Between(1.5, 5), d.minutes(3, 8)
	case Slow:
		f.Constant, f.Peak = days(1, 5), d.Between(3, 8)
		lasts = f.Constant + 2*24*time.Hour
	case Nightly:
		lasts, f.Peak = days(5, 6), d.Between(3.5, 8)
	case Drift:
		lasts = days(8, 10)
		f.Peak = d.sign() * d.Between(0.1, 0.5) * lasts.Hours() / 24
	default:
		return d.sized(p, kind)
	}
	return f, lasts
}

// Group is where a fault on recorded readings is: nodes that it befalls together.
type Group struct {
	Name  string // node, rack or room
	Nodes []string
}

// OnRecorded draws up to count faults of a kind, each at one of the groups, that begin and end
// within the plan's span and come no nearer than gap to those of taken at any of its nodes. It
// adds them to taken, which has the faults of each node, and returns them with their groups.
func OnRecorded(p Plan, kind Kind, count int, gap time.Duration, groups []Group, taken map[string][]Fault) (faults []Fault, at []Group) {
	d := Draws{Seed: p.Seed, Stream: hash(string(kind))}
	for range count {
		f, lasts := d.onRecorded(p, kind)
		if kind != Spike {
			lasts = max(lasts, 4*p.Interval)
		}
		near := func(other Fault) bool { return f.within(gap, other) }
		for range 100 {
			g := groups[int(d.Next()*float64(len(groups)))]
			if !d.begin(&f, p, lasts) || slices.ContainsFunc(g.Nodes, func(n string) bool { return slices.ContainsFunc(taken[n], near) }) {
				continue
			}
			for _, n := range g.Nodes {
				taken[n] = append(taken[n], f)
			}
			faults, at = append(faults, f), append(at, g)
			break
		}
	}
	return faults, at
}
