// Package anomaly scores how unusual a reading is for its node. Its statistics compare the
// reading with the node's last day and with its neighbours. The calibration rates how rare
// each was among the customer's nodes in the last four weeks, and the rarest gives the score.
// An alarm is a score that is rarer than the customer's budget of false alarms allows. The
// package also explains a score in words and forecasts when a limit will be passed.
//
// It has no storage and no clock. Detection, the daily calibration and evaluation call it.
// The same input gives the same bytes on any number of cores.
package anomaly

import (
	"iter"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/reading"
)

// Statistic is a measure of how unusual a reading is.
type Statistic int

// The statistics. Those against neighbours need at least [MinNeighbours] that are heard.
const (
	Unchanged         Statistic = iota // seconds for which both values have been the same
	DewPointLevel                      // °C of the dew point above the neighbours' and above what is usual for that in a day
	TemperatureChange                  // °C in two hours, more than the neighbours
	DewPointChange                     // °C of the dew point in a quarter of an hour, more than the neighbours
	Roughness                          // how much readings rise and fall, in floors
	OwnTemperature1                    // °C in an hour
	OwnTemperature2                    // °C in two hours
	OwnDewPoint15                      // °C of the dew point in a quarter of an hour
	OwnDewPoint60                      // °C of the dew point in an hour
	OwnDewPoint240                     // °C of the dew point in four hours

	// Count is the number of statistics.
	Count
)

// kind describes a statistic; its sizes are in the unit of the statistic.
type kind struct {
	name     string  // for programs
	quantity string  // the unusual one: temperature, humidity or dew_point; empty for both values
	change   string  // the end of a sentence about a change; empty for a statistic that is not a change
	floor    float64 // below it a change means nothing: the resolution of common sensors, and ten equal readings
	least    float64 // below it nobody needs to know, however rare it is
	believed float64 // the largest size that is shown as usual
}

func kinds() [Count]kind {
	const twoHours, quarter = "more than its neighbours' in two hours", "more than its neighbours' in a quarter of an hour"
	return [...]kind{
		{"unchanged", "", "", 300, 900, 86400},
		{"dew_point_level", "dew_point", "", 0.3, 1, 8},
		{"temperature_change", "temperature", twoHours, 0.2, 1, 8},
		{"dew_point_change", "dew_point", quarter, 0.2, 0.8, 8},
		{"roughness", "", "", 1, 1.5, 10},
		{"own_temperature_1h", "temperature", "in an hour", 0.2, 0, 10},
		{"own_temperature_2h", "temperature", "in two hours", 0.2, 0, 10},
		{"own_dew_point_15m", "dew_point", "in a quarter of an hour", 0.2, 0.8, 8},
		{"own_dew_point_1h", "dew_point", "in an hour", 0.2, 1.2, 8},
		{"own_dew_point_4h", "dew_point", "in four hours", 0.3, 1.5, 8},
	}
}

// String is the name of the statistic, for programs.
func (s Statistic) String() string { return kinds()[s].name }

// The floors of roughness, °C and %.
const (
	roughTemperature = 0.1
	roughHumidity    = 0.3
	roughCap         = 30 // floors: one impossible value must not look like a day's noise
)

// MinNeighbours is the fewest neighbours that a node is compared with, MaxNeighbours the most.
const (
	MinNeighbours = 4
	MaxNeighbours = 8
	held          = 300.0 // seconds for which a neighbour's value counts as current
)

// SlotWidth is the width of the slots of a [Day], those of table node_slots.
const SlotWidth = 10 * time.Minute

const slotsOfDay = 144

// Air is a temperature and a dew point, both in °C; NaN where there is none.
type Air struct{ Temperature, DewPoint float64 }

// AirOf is the air of a temperature in °C and a relative humidity in %, which it rounds as in a window, to a
// hundred-thousandth of a degree as in a [Day].
func AirOf(temperature, humidity float64) Air {
	temperature, humidity = reading.Round(temperature), reading.Round(humidity)
	return Air{float64(float32(temperature)), float64(float32(reading.DewPoint(temperature, humidity)))}
}

func none() Air { return Air{Temperature: math.NaN(), DewPoint: math.NaN()} }

// Day is the last day of a node: its last reading in each slot of ten minutes. The
// zero value is empty. It takes 1,160 bytes: detection keeps one of every node.
type Day struct {
	slots  [slotsOfDay][2]float32 // temperature and dew point
	newest int64                  // slot since 1970; slots that are empty or older are NaN
}

// SlotOf is the number of the slot of a time, since 1970.
func SlotOf(at time.Time) int64 { return at.Unix() / int64(SlotWidth/time.Second) }

// Put sets the last reading of a slot. Slots come in the order of time; an older one
// within the day is overwritten.
func (d *Day) Put(slot int64, a Air) {
	set := func(slot int64, a Air) {
		d.slots[slot%slotsOfDay] = [2]float32{float32(a.Temperature), float32(a.DewPoint)}
	}
	for d.newest = max(d.newest, slot-slotsOfDay); d.newest < slot; {
		d.newest++
		set(d.newest, none())
	}
	if slot > d.newest-slotsOfDay {
		set(slot, a)
	}
}

// At is the last reading of a slot.
func (d *Day) At(slot int64) Air {
	if slot > d.newest || slot <= d.newest-slotsOfDay {
		return none()
	}
	a := d.slots[slot%slotsOfDay]
	return Air{float64(a[0]), float64(a[1])}
}

// The ages, in slots, of the readings that changes are measured from. A slot holds its last
// reading, so that of n slots before the present one is n-1 to n slots old.
const (
	quarterHour = 2
	hour        = 6
	twoHours    = 12
	fourHours   = 24
)

// Surroundings are the state of a node's neighbours, in °C.
type Surroundings struct {
	Neighbours int     // heard within five minutes; below [MinNeighbours] the next three are not used
	Air        Air     // medians of the neighbours', each corrected by the node's usual difference
	Warmer     float64 // median of their changes of temperature in two hours
	Damper     float64 // median of their changes of the dew point in a quarter of an hour
	Usual      Air     // the node's own medians of the day, see [Day.Median]
}

// excess is how much a node's air usually differs from another's because of place and calibration: the medians
// of the difference over the day before a slot. It is NaN with less than an hour of both. It takes 20 µs.
func (d *Day) excess(slot int64, other *Day) Air {
	return medians(slot, func(s int64) Air {
		mine, theirs := d.At(s), other.At(s)
		return Air{mine.Temperature - theirs.Temperature, mine.DewPoint - theirs.DewPoint}
	})
}

// Median returns the medians over the day before a slot; NaN with less than an hour.
func (d *Day) Median(slot int64) Air { return medians(slot, d.At) }

func medians(slot int64, of func(slot int64) Air) Air {
	temperatures, dewPoints := make([]float64, 0, slotsOfDay), make([]float64, 0, slotsOfDay)
	for s := slot - slotsOfDay + 1; s < slot; s++ {
		a := of(s)
		temperatures, dewPoints = append(temperatures, a.Temperature), append(dewPoints, a.DewPoint)
	}
	return Air{median(temperatures, hour), median(dewPoints, hour)}
}

// median sorts the values. It is NaN if fewer than least of them are known.
func median(values []float64, least int) float64 {
	if values = slices.DeleteFunc(values, math.IsNaN); len(values) < least {
		return math.NaN()
	}
	return features.Quantile(values, 0.5)
}

// Live is the state of a node, updated by each reading. The zero value is a node that was never heard.
type Live struct {
	Now   Air // at Heard
	Heard time.Time
	Day   Day

	known

	usualHour int64 // when usual was computed
	usual     Air
	hour      int64 // when excess was, which changes little in an hour
	excess    []Air // over each neighbour
}

// Hear adds a reading. One without temperature does not change the air.
func (l *Live) Hear(r reading.Reading) {
	if !reading.Has(r.Temperature) {
		return
	}
	l.Now, l.Heard = AirOf(r.Temperature, r.Humidity), r.Time
	l.Day.Put(SlotOf(r.Time), l.Now)
}

// ofDay is [Day.Median], computed once in an hour.
func (l *Live) ofDay(at time.Time) Air {
	if hour := at.Unix() / 3600; l.usualHour != hour {
		l.usualHour, l.usual = hour, l.Day.Median(SlotOf(at))
	}
	return l.usual
}

// Around returns the surroundings of a node at a time, by at most [MaxNeighbours] neighbours,
// which may change from hour to hour.
func (l *Live) Around(at time.Time, neighbours []*Live) Surroundings {
	slot, s := SlotOf(at), Surroundings{Usual: l.ofDay(at)}
	if hour := at.Unix() / 3600; l.hour != hour {
		l.hour, l.excess = hour, l.excess[:0]
		for _, other := range neighbours {
			l.excess = append(l.excess, l.Day.excess(slot, &other.Day))
		}
	}
	values := func() []float64 { return make([]float64, 0, MaxNeighbours) }
	temperature, dew, warmer, damper := values(), values(), values(), values()
	for i, other := range neighbours {
		if !heardAt(other.Heard, at) || math.IsNaN(other.Now.Temperature) {
			continue
		}
		s.Neighbours++
		temperature = append(temperature, other.Now.Temperature+l.excess[i].Temperature)
		dew = append(dew, other.Now.DewPoint+l.excess[i].DewPoint)
		warmer = append(warmer, other.Now.Temperature-other.Day.At(slot-twoHours).Temperature)
		damper = append(damper, other.Now.DewPoint-other.Day.At(slot-quarterHour).DewPoint)
	}
	s.Air, s.Warmer, s.Damper = Air{median(temperature, 1), median(dew, MinNeighbours)}, median(warmer, 1), median(damper, MinNeighbours)
	return s
}

// Player plays the recorded readings of a node as detection hears them: for the daily
// calibration and for evaluation.
type Player struct {
	Live

	Readings []reading.Reading // oldest first
	Next     int               // place of the next one

	window func() (int, reading.Window, bool)
}

// NewPlayer returns a player, and a function that stops it.
func NewPlayer(readings []reading.Reading) (p Player, stop func()) {
	p.Readings = readings
	p.window, stop = iter.Pull2(features.Windows(readings))
	return p, stop
}

// Play hears the readings before a time. judge is called with each before it is heard.
func (p *Player) Play(until time.Time, judge func(w reading.Window, r reading.Reading)) {
	for ; p.Next < len(p.Readings) && p.Readings[p.Next].Time.Before(until); p.Next++ {
		_, w, _ := p.window()
		judge(w, p.Readings[p.Next])
		p.Hear(p.Readings[p.Next])
	}
}

// Values are the statistics of one reading, signed, in their units. One that is unknown, such
// as a change since a time at which the node was silent, is NaN.
type Values [Count]float64

// Statistics computes them for a reading from the valid window before it, the node's
// day before the reading's slot, and its surroundings.
func Statistics(w reading.Window, r reading.Reading, day *Day, around Surroundings) Values {
	v := Values{DewPointLevel: math.NaN(), TemperatureChange: math.NaN(), DewPointChange: math.NaN()}
	slot := SlotOf(r.Time)
	r.Temperature, r.Humidity = reading.Round(r.Temperature), reading.Round(r.Humidity) // as in the window
	v[Unchanged] = unchanged(w, r, day, slot)
	warm, humid := w.With(w.Temperature), w.With(w.Humidity)
	v[Roughness] = larger(rough(warm.Age, warm.Temperature, r.Temperature, roughTemperature), rough(humid.Age, humid.Humidity, r.Humidity, roughHumidity))
	now := AirOf(smooth(warm.Age, warm.Temperature, r.Temperature), smooth(humid.Age, humid.Humidity, r.Humidity))
	if around.Neighbours >= MinNeighbours {
		v[DewPointLevel] = now.DewPoint - around.Air.DewPoint
		change := now.Temperature - day.At(slot-twoHours).Temperature
		v[TemperatureChange] = departed(departed(change-around.Warmer, now.Temperature-around.Air.Temperature), change)
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

// smooth returns a quantity now, the median of its last three readings; NaN if the reading lacks it.
func smooth(ages, values []float64, now float64) float64 {
	if n := len(values); n >= 2 && ages[n-2] <= held {
		return median3(values[n-2], values[n-1], now)
	}
	return now
}

// departed is the part of a change that leads away from the usual value, so that a value that
// comes back is not a second anomaly.
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

// larger is the larger of two numbers; NaN does not count.
func larger[F float32 | float64](a, b F) F {
	if a >= b || math.IsNaN(float64(b)) {
		return a
	}
	return b
}

func median3(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// unchanged is the time in seconds for which no value has changed; NaN without earlier readings
// of the same quantities. Beyond the window the slots of the day count.
func unchanged(w reading.Window, r reading.Reading, day *Day, slot int64) float64 {
	if reading.Has(r.Temperature) {
		w = w.With(w.Temperature)
	}
	if reading.Has(r.Humidity) {
		w = w.With(w.Humidity)
	}
	if w.Len() == 0 {
		return math.NaN()
	}
	equal := func(a, b float64) bool { return a == b || math.IsNaN(b) }
	same, equals, i := 0.0, 0, w.Len()-1
	for ; i >= 0 && equal(w.Temperature[i], r.Temperature) && equal(w.Humidity[i], r.Humidity); i-- {
		same = w.Age[i]
		equals++
	}
	if i < 0 && reading.Has(r.Temperature) {
		last := AirOf(r.Temperature, r.Humidity)
		alike := func(a Air) bool { return a.Temperature == last.Temperature && equal(a.DewPoint, last.DewPoint) }
		for back := int64(1); back < slotsOfDay && alike(day.At(slot-back)); back++ {
			same = max(same, float64(back)*SlotWidth.Seconds())
			equals++
		}
	}
	if equals < fewEqual {
		return 0
	}
	return same
}

// fewEqual is how many equal readings before a reading may be chance, however rare readings are.
const fewEqual = 5

// rough is the mean of the last twelve second differences, each of at most roughCap floors, in floors; NaN with
// fewer, unless they are all of an hour.
func rough(ages, values []float64, now, floor float64) float64 {
	const most, least = 12, 8
	n := min(most, len(values)-1)
	if n < most && (n < least || ages[0] < leastWindow) {
		return math.NaN()
	}
	last := append(append(make([]float64, 0, most+2), values[len(values)-n-1:]...), now)
	sum := 0.0
	for i := range n {
		sum += min(math.Abs((last[i+2]-last[i+1])-(last[i+1]-last[i])), roughCap*floor)
	}
	return sum / (float64(n) * floor)
}

// strength is how large each statistic is, on the scale on which hours are compared:
// the logarithm of 1 + its size in floors, twice for roughness, which is a mean.
func (v Values) strength() (h Hour) {
	for i, k := range kinds() {
		strength := math.Log1p(math.Abs(v[i]) / k.floor)
		if Statistic(i) == Roughness {
			strength = math.Log1p(strength)
		}
		h[i] = float32(strength)
	}
	return h
}

// worth is the strength of the statistics that are large enough to report, 0 of the others.
func (v Values) worth() Hour {
	h := v.strength()
	for i, k := range kinds() {
		if math.Abs(v[i]) < k.least {
			h[i] = 0
		}
	}
	return h
}
