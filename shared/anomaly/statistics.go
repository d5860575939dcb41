// Package anomaly says how unusual a reading is for its node: seven statistics of the
// node's last day and of its neighbours, how rare each is by what the customer's nodes
// did in four weeks, and one number that all are combined to, compared with how many
// false alarms a month the customer stands. It says why in words, joins alarms to
// episodes, and forecasts when a limit will be passed.
//
// It knows no storage and no clock: detection gives it a reading with what is known
// around it, the daily calibration the maxima of hours, the evaluation both. The same
// input gives the same bytes on any number of cores and on any machine: logarithms are
// those of package portable, and no product is added to without being rounded first.
package anomaly

import (
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/portable"
	"coldaisle.dev/shared/reading"
)

// Statistic is one way to be unusual.
type Statistic int

// The statistics. Those against neighbours take the place of a node's own changes where
// at least [MinNeighbours] are heard.
const (
	TemperatureStep   Statistic = iota // °C from the median of the three readings before, of the last three the most
	HumidityStep                       // % from the median of the three readings before, of the last three the most
	Unchanged                          // seconds for which both values have been the same
	DewPointLevel                      // °C of the dew point above the neighbours' and above what is usual for that in a day
	TemperatureChange                  // °C in two hours, more than the neighbours
	DewPointChange                     // °C of the dew point in a quarter of an hour, more than the neighbours
	Roughness                          // how much readings go to and fro, in floors
	OwnTemperature1                    // °C in an hour
	OwnTemperature2                    // °C in two hours
	OwnDewPoint15                      // °C of the dew point in a quarter of an hour
	OwnDewPoint60                      // °C of the dew point in an hour
	OwnDewPoint240                     // °C of the dew point in four hours

	// Count is how many there are.
	Count
)

// String is the name of the statistic, for programs.
func (s Statistic) String() string {
	return [...]string{
		"temperature_step", "humidity_step", "unchanged", "dew_point_level", "temperature_change", "dew_point_change", "roughness",
		"own_temperature_1h", "own_temperature_2h", "own_dew_point_15m", "own_dew_point_1h", "own_dew_point_4h",
	}[s]
}

// floors are what is nothing at all, in the unit of the statistic: the digits of the
// sensors that are sold, and ten readings that happen to be the same.
func floors() [Count]float64 {
	return [Count]float64{0.1, 0.3, 300, 0.3, 0.2, 0.2, 1, 0.2, 0.2, 0.2, 0.2, 0.3}
}

// The floors of roughness, °C and %.
const (
	roughTemperature = 0.1
	roughHumidity    = 0.3
	roughCap         = 10 // floors: one spike must not look like noise for six minutes
)

// MinNeighbours is how many neighbours must be heard for a node to be compared with
// them, MaxNeighbours how many are asked.
const (
	MinNeighbours = 4
	MaxNeighbours = 8
)

// held is how long a value stands for the present, in seconds.
const held = 300.0

// SlotWidth is the width of the slots of a [Day], those of table node_slots.
const SlotWidth = 10 * time.Minute

const slotsOfDay = 144

// Air is a temperature and a dew point, both in °C; NaN where there is none.
type Air struct{ Temperature, DewPoint float64 }

// AirOf is the air of a temperature in °C and a relative humidity in %.
func AirOf(temperature, humidity float64) Air {
	return Air{Temperature: temperature, DewPoint: reading.DewPoint(temperature, humidity)}
}

func none() Air { return Air{Temperature: math.NaN(), DewPoint: math.NaN()} }

// Day is the last day of a node: its last reading in each slot of ten minutes. The
// zero value is empty. It takes 1,160 bytes: detection keeps one of every node.
type Day struct {
	slots  [slotsOfDay]narrowAir
	newest int64 // slot since 1970; slots that are empty or older are NaN
}

// narrowAir is an [Air] to a hundred-thousandth of a degree.
type narrowAir struct{ temperature, dewPoint float32 }

func narrow(a Air) narrowAir { return narrowAir{float32(a.Temperature), float32(a.DewPoint)} }

func (a narrowAir) air() Air { return Air{float64(a.temperature), float64(a.dewPoint)} }

// SlotOf is the number of the slot of a time, since 1970.
func SlotOf(at time.Time) int64 { return at.Unix() / int64(SlotWidth/time.Second) }

// Put keeps what was last measured in a slot. Slots come in the order of time; an older
// one within the day is written over.
func (d *Day) Put(slot int64, a Air) {
	if d.newest == 0 || slot-d.newest >= slotsOfDay {
		for i := range d.slots {
			d.slots[i] = narrow(none())
		}
		d.newest = slot
	}
	for d.newest < slot {
		d.newest++
		d.slots[d.newest%slotsOfDay] = narrow(none())
	}
	if slot > d.newest-slotsOfDay {
		d.slots[slot%slotsOfDay] = narrow(a)
	}
}

// At is what was last measured in a slot.
func (d *Day) At(slot int64) Air {
	if d.newest == 0 || slot > d.newest || slot <= d.newest-slotsOfDay {
		return none()
	}
	return d.slots[slot%slotsOfDay].air()
}

// The ages, in slots, of what changes are measured from: the end of the slot so many
// before the present one, which is between that many and one fewer slots ago.
const (
	quarterHour = 2
	hour        = 6
	twoHours    = 12
	fourHours   = 24
)

// Surroundings are what a node's neighbours do, in °C.
type Surroundings struct {
	Neighbours int     // heard within five minutes; below [MinNeighbours] the next three are not used
	Air        Air     // medians of theirs, each with what the node is usually above it
	Warmer     float64 // median of their changes of temperature in two hours
	Damper     float64 // median of their changes of the dew point in a quarter of an hour
	Usual      Air     // the node's own medians of the day, see [Day.Median]
}

// Neighbour is what is known of one: the air now, NaN if it has not been heard for five
// minutes, its day, and what a node's dew point usually is above its own, see [Excess].
type Neighbour struct {
	Now    Air
	Day    *Day
	Excess Air
}

// Surround sums neighbours up, at most [MaxNeighbours] of them. usual is [Day.Median] of
// the node.
func Surround(slot int64, neighbours []Neighbour, usual Air) Surroundings {
	var temperature, dew, warmer, damper sample
	s := Surroundings{Usual: usual}
	for _, n := range neighbours[:min(len(neighbours), MaxNeighbours)] {
		if math.IsNaN(n.Now.Temperature) {
			continue
		}
		s.Neighbours++
		now := narrow(n.Now).air() // as its day is
		temperature.add(now.Temperature + n.Excess.Temperature)
		dew.add(now.DewPoint + n.Excess.DewPoint)
		warmer.add(now.Temperature - n.Day.At(slot-twoHours).Temperature)
		damper.add(now.DewPoint - n.Day.At(slot-quarterHour).DewPoint)
	}
	s.Air, s.Warmer, s.Damper = Air{temperature.median(), dew.median()}, warmer.median(), damper.median()
	return s
}

// Excess is by how much a node's air usually differs from a neighbour's: the medians of
// the difference over the day before a slot, which tell their places and calibrations.
// NaN with less than an hour of both. It changes little in an hour, and takes 20 µs.
func Excess(slot int64, own, other *Day) Air {
	return medians(slot, func(s int64) Air {
		mine, theirs := own.At(s), other.At(s)
		return Air{mine.Temperature - theirs.Temperature, mine.DewPoint - theirs.DewPoint}
	})
}

// Median is the medians over the day before a slot, NaN with less than an hour. It is
// for keeping for an hour, as [Excess] is.
func (d *Day) Median(slot int64) Air { return medians(slot, d.At) }

func medians(slot int64, of func(slot int64) Air) Air {
	var temperature, dew [slotsOfDay]float64
	n := 0
	for s := slot - slotsOfDay + 1; s < slot; s++ {
		if a := of(s); !math.IsNaN(a.Temperature) {
			temperature[n], dew[n] = a.Temperature, a.DewPoint
			n++
		}
	}
	if n < hour {
		return none()
	}
	slices.Sort(temperature[:n])
	slices.Sort(dew[:n])
	return Air{quantile(temperature[:n], 0.5), quantile(dew[:n], 0.5)}
}

// Live is what is known of a node as its readings come; the zero value of one that was not
// heard.
type Live struct {
	Now   Air // at Heard
	Heard time.Time
	Day   Day

	hour   int64 // of the next two: what is usual for a day changes little in an hour
	usual  Air
	excess []Air // over each neighbour
}

// Hear takes a reading.
func (l *Live) Hear(r reading.Reading) {
	l.Now, l.Heard = AirOf(r.Temperature, r.Humidity), r.Time
	l.Day.Put(SlotOf(r.Time), l.Now)
}

// Around is what the neighbours of a node do at a time. They may be others in each hour.
func (l *Live) Around(at time.Time, neighbours []*Live) Surroundings {
	slot := SlotOf(at)
	if hour := at.Unix() / 3600; l.hour != hour {
		l.hour, l.usual, l.excess = hour, l.Day.Median(slot), l.excess[:0]
		for _, other := range neighbours {
			l.excess = append(l.excess, Excess(slot, &l.Day, &other.Day))
		}
	}
	var theirs [MaxNeighbours]Neighbour
	for i, other := range neighbours {
		theirs[i] = Neighbour{Now: other.Now, Day: &other.Day, Excess: l.excess[i]}
		if at.Sub(other.Heard).Seconds() > held || other.Heard.Sub(at).Seconds() > held {
			theirs[i].Now = none()
		}
	}
	return Surround(slot, theirs[:len(neighbours)], l.usual)
}

// sample is a few numbers, of which it leaves out those that are none.
type sample struct {
	values [MaxNeighbours]float64
	n      int
}

func (s *sample) add(v float64) {
	if !math.IsNaN(v) {
		s.values[s.n] = v
		s.n++
	}
}

func (s *sample) median() float64 { return medianOf(s.values[:s.n]) }

// medianOf orders values; NaN of none. It is an insertion sort: they are few.
func medianOf(values []float64) float64 {
	for i := 1; i < len(values); i++ {
		for j := i; j > 0 && values[j] < values[j-1]; j-- {
			values[j], values[j-1] = values[j-1], values[j]
		}
	}
	n := len(values)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return values[n/2]
	default:
		return (values[n/2-1] + values[n/2]) / 2
	}
}

// Values are the statistics of one reading, signed, in their units; NaN where one
// cannot be told, such as a change over a time before which the node was not there.
type Values [Count]float64

// Statistics computes them for a reading from the valid window before it, the node's
// day before the reading's slot, and its surroundings.
func Statistics(w reading.Window, r reading.Reading, day *Day, around Surroundings) Values {
	var v Values
	for i := range v {
		v[i] = math.NaN()
	}
	n := w.Len()
	slot := SlotOf(r.Time)
	r.Temperature, r.Humidity = reading.Round(r.Temperature), reading.Round(r.Humidity) // as the window's are
	if n > 0 {
		v[Unchanged] = unchanged(w, r, day, slot)
	}
	t, h := r.Temperature, r.Humidity
	if n >= 2 && w.Age[n-2] <= held {
		t, h = median3(w.Temperature[n-2], w.Temperature[n-1], t), median3(w.Humidity[n-2], w.Humidity[n-1], h)
	}
	if n >= 3 && w.Age[n-1] <= held {
		v[TemperatureStep] = step(w.Temperature, r.Temperature)
		v[HumidityStep] = step(w.Humidity, r.Humidity)
	}
	v[Roughness] = max(rough(w.Temperature, r.Temperature, roughTemperature), rough(w.Humidity, r.Humidity, roughHumidity))
	now := narrow(AirOf(t, h)).air()
	if around.Neighbours >= MinNeighbours {
		v[DewPointLevel] = now.DewPoint - around.Air.DewPoint
		v[TemperatureChange] = departed(now.Temperature-day.At(slot-twoHours).Temperature-around.Warmer, now.Temperature-around.Air.Temperature)
		v[DewPointChange] = departed(now.DewPoint-day.At(slot-quarterHour).DewPoint-around.Damper, v[DewPointLevel])
	}
	warmer, damper := now.Temperature-around.Usual.Temperature, now.DewPoint-around.Usual.DewPoint
	v[OwnTemperature1] = departed(now.Temperature-day.At(slot-hour).Temperature, warmer)
	v[OwnTemperature2] = departed(now.Temperature-day.At(slot-twoHours).Temperature, warmer)
	v[OwnDewPoint15] = departed(now.DewPoint-day.At(slot-quarterHour).DewPoint, damper)
	v[OwnDewPoint60] = departed(now.DewPoint-day.At(slot-hour).DewPoint, damper)
	v[OwnDewPoint240] = departed(now.DewPoint-day.At(slot-fourHours).DewPoint, damper)
	return v
}

// departed is how much of a change leads away from what is usual: a value that comes
// back is no second anomaly.
func departed(change, unusual float64) float64 {
	switch {
	case math.IsNaN(unusual) || math.IsNaN(change):
		return change
	case change*unusual <= 0:
		return 0
	case math.Abs(change) < math.Abs(unusual):
		return change
	default:
		return unusual
	}
}

// step is the largest of the last three readings' differences from the median of the
// three before each: a step is still one when the next reading shows that it lasts.
func step(values []float64, now float64) float64 {
	n := len(values)
	largest := now - median3(values[n-3], values[n-2], values[n-1])
	for last := n - 1; last >= max(3, n-2); last-- {
		if d := values[last] - median3(values[last-3], values[last-2], values[last-1]); math.Abs(d) > math.Abs(largest) {
			largest = d
		}
	}
	return largest
}

func median3(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// unchanged is for how many seconds both values have been what they are; where the
// window ends first, the slots of the day that ended with them count on.
func unchanged(w reading.Window, r reading.Reading, day *Day, slot int64) float64 {
	i := w.Len() - 1
	for i >= 0 && w.Temperature[i] == r.Temperature && w.Humidity[i] == r.Humidity {
		i--
	}
	if i+1 == w.Len() {
		return 0
	}
	same := w.Age[i+1]
	if i >= 0 {
		return same
	}
	last := narrow(AirOf(r.Temperature, r.Humidity))
	for back := int64(1); back < slotsOfDay && narrow(day.At(slot-back)) == last; back++ {
		same = max(same, float64(back)*SlotWidth.Seconds())
	}
	return same
}

// rough is the mean of the last twelve second differences, each of at most roughCap
// floors, in floors; NaN with fewer.
func rough(values []float64, now, floor float64) float64 {
	const differences = 12
	if len(values) < differences+1 {
		return math.NaN()
	}
	last := values[len(values)-differences-1:]
	sum := 0.0
	for i := range differences {
		next := now
		if i+2 < len(last) {
			next = last[i+2]
		}
		sum += min(math.Abs((next-last[i+1])-(last[i+1]-last[i])), roughCap*floor)
	}
	return sum / (differences * floor)
}

// strength is how large each statistic is, on the scale on which hours are compared:
// the logarithm of 1 + its size in floors, twice for roughness, which is a mean.
func (v Values) strength() (s [Count]float64) {
	floor := floors()
	for i, value := range v {
		s[i] = portable.Log1p(math.Abs(value) / floor[i])
	}
	s[Roughness] = portable.Log1p(s[Roughness])
	return s
}
