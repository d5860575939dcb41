package anomaly

import (
	"cmp"
	"fmt"
	"math"

	"coldaisle.dev/shared/reading"
)

// The forecast of a limit. A room without cooling warms ever more slowly: its slope falls with a time constant,
// here one that is longer than most rooms', so that the forecast errs on the early side.
const (
	// trendSpan is the seconds over which the slope is fitted, or those of leastTrend readings, of a node that sends seldom.
	trendSpan, leastTrend = 600.0, 5
	reach                 = 40.0 // minutes, the time constant
	// Horizon is how far ahead limits are forecast, in minutes.
	Horizon = 30.0
	// sooner is the time, in minutes, in which the line itself must pass the limit: half of the limits
	// that it only just passes by Horizon are never passed.
	sooner = 20.0
	// inARow is the number of consecutive readings that must agree.
	inARow = 3
	// sure is the least slope in standard errors: a jump is not a line.
	sure = 6
	// Two readings in a row that rise are reported at once if both rises are at least rush °C a minute, or leastRush
	// °C, and quieter times any in the window, and the limit is at most soon minutes, or three intervals, away.
	rush, leastRush, quieter, soon = 0.2, 1.0 / 3, 1.5, 5.0
	// most is the share of the way from the window's coldest reading to the limit that a line must have
	// covered, some the share for two readings: a rise goes on for about as far as it has come.
	most, some = 0.55, 1.0 / 3
)

// Trend is a line through a node's last temperatures.
type Trend struct {
	Level float64 // °C now, on the line
	Slope float64 // °C a minute
	Error float64 // standard error of the slope
}

// TrendOf fits a line to the ten minutes, or the four readings, before the reading that is back
// readings older than r. It reports false with fewer readings, less than five minutes of them, or
// more than ten of which a silence is the half. Readings without temperature do not count.
func TrendOf(w reading.Window, r reading.Reading, back int) (Trend, bool) {
	w = w.With(w.Temperature)
	last := w.Len() - back // place of the reading: w.Len() is r itself
	if last < 0 || !reading.Has(r.Temperature) {
		return Trend{}, false
	}
	at := func(i int) (minutes, value float64) {
		if i == w.Len() {
			return 0, r.Temperature
		}
		return -w.Age[i] / 60, w.Temperature[i]
	}
	origin, base := at(last)
	n, st, sv, stt, stv, svv := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	earliest, silence := 0.0, 0.0
	for i := last; i >= 0; i-- {
		t, v := at(i)
		t, v = t-origin, v-base
		if t < -trendSpan/60 && n >= leastTrend {
			break
		}
		silence = max(silence, earliest-t)
		n, st, sv, earliest = n+1, st+t, sv+v, t
		stt, stv, svv = stt+t*t, stv+t*v, svv+v*v
	}
	spread := stt - st*st/n
	if n < leastTrend || earliest > -trendSpan/120 || earliest < -trendSpan/60 && 2*silence > -earliest {
		return Trend{}, false
	}
	shared := stv - st*sv/n
	slope := shared / spread
	residual := max(0, svv-sv*sv/n-slope*shared)
	return Trend{
		Level: base + sv/n - slope*st/n, Slope: slope, Error: math.Sqrt(residual / (n - 2) / spread),
	}, true
}

// At forecasts the temperature after so many minutes, °C. A room that cools is assumed to stay.
func (t Trend) At(minutes float64) float64 {
	return t.Level + max(t.Slope, 0)*reach*(1-math.Exp(-minutes/reach))
}

// unsure is the error of a forecast so many minutes ahead, °C, but for the factor that follows
// from the node's past errors.
func (t Trend) unsure(minutes float64) float64 {
	return 0.15 + 0.5*math.Abs(t.Slope)*minutes + 0.3*t.Error*minutes
}

// Width is the factor by which a node's 90 % intervals are wider than its uncertainty. It is
// stored with the node's state; 0 stands for the first one.
type Width float64

const (
	// FirstWidth is the width of a node before anything is known of it.
	FirstWidth = 2.0
	adaptation = 0.02 // of FirstWidth, with each reading
	// Narrowest is the smallest width.
	Narrowest = 0.1
	missed    = 0.1 // share of the readings outside
)

// Factor returns the width, or the first one for 0.
func (q Width) Factor() float64 { return cmp.Or(float64(q), FirstWidth) }

// Interval is the range of the temperature in 9 of 10 cases, °C.
func (t Trend) Interval(q Width, minutes float64) (low, high float64) {
	middle, half := t.At(minutes), q.Factor()*t.unsure(minutes)
	return middle - half, middle + half
}

// Update compares a reading with its forecast of [Horizon] minutes ago, which it makes from the
// same window, and returns the adapted width. inside says that the reading lay within the
// interval, known that there was one. Call it only for new readings, because each counts once.
func (q Width) Update(w reading.Window, r reading.Reading) (next Width, inside, known bool) {
	const oldest = (Horizon + 2) * 60 // seconds
	w = w.With(w.Temperature)
	origin := w.Len() - 1
	for origin >= 0 && w.Age[origin] < Horizon*60 {
		origin--
	}
	t, ok := TrendOf(w, r, w.Len()-origin)
	if !ok || w.Age[origin] > oldest {
		return q, false, false
	}
	low, high := t.Interval(q, w.Age[origin]/60)
	inside = low <= r.Temperature && r.Temperature <= high
	step := -missed
	if !inside {
		step = 1 - missed
	}
	return Width(max(Narrowest, q.Factor()+adaptation*FirstWidth*step)), inside, true
}

// rushing is the line through a reading and the two before it in a window of temperatures, if they
// rise faster than [TrendOf] could show in time. Its error is the difference of the two rises.
func rushing(w reading.Window, r reading.Reading, limit float64) (Trend, bool) {
	n := w.Len()
	if n < 2 {
		return Trend{}, false
	}
	gap, before := w.Age[n-1]/60, (w.Age[n-2]-w.Age[n-1])/60
	silence := w.Age[n-2] > trendSpan && max(gap, before) > 2*min(gap, before)
	late, early := (r.Temperature-w.Temperature[n-1])/gap, (w.Temperature[n-1]-w.Temperature[n-2])/before
	slow, fast := min(late, early), max(late, early)
	ahead := min(Horizon, max(soon, 3*gap))
	if silence || !(slow >= min(rush, leastRush/gap)) || r.Temperature >= limit || r.Temperature+ahead*slow < limit {
		return Trend{}, false
	}
	for i := 2; i < n-1; i++ { // a noisy sensor rises and falls as fast
		if quieter*(w.Temperature[i]-w.Temperature[i-2]) >= r.Temperature-w.Temperature[n-2] {
			return Trend{}, false
		}
	}
	return Trend{Level: r.Temperature, Slope: slow, Error: fast - slow}, true
}

// rising is the line of [TrendOf], if by this reading and by the two before it the
// line reaches the limit in time, and its slope is sure.
func rising(w reading.Window, r reading.Reading, limit float64) (now Trend, ok bool) {
	for back := inARow - 1; back >= 0; back-- {
		if now, ok = TrendOf(w, r, back); !ok || now.Level >= limit || now.At(sooner) < limit {
			return now, false
		}
	}
	return now, now.Slope >= sure*now.Error
}

// Passing is when a limit will be passed, in minutes from now.
type Passing struct{ Earliest, Latest float64 }

// Passes forecasts when the temperature passes a limit above it. It reports true if the line of the last readings, or
// two fast rises, lead to the limit and have covered enough of the way, and it is warmer now than in the hour
// before: cycling cooling, or a door, is no failure. Latest is Horizon if the interval does not end before.
func Passes(w reading.Window, r reading.Reading, limit float64, q Width) (Passing, bool) {
	w = w.With(w.Temperature)
	coldest := r.Temperature
	for _, v := range w.Temperature {
		coldest = min(coldest, v)
	}
	gone := (r.Temperature - coldest) / (limit - coldest)
	if gone < some { // true for most readings, and cheaper than a line
		return Passing{}, false
	}
	t, ok := rising(w, r, limit)
	if !ok || gone < most {
		t, ok = rushing(w, r, limit)
	}
	if !ok {
		return Passing{}, false
	}
	for i, age := range w.Age {
		if age >= trendSpan && w.Temperature[i] >= r.Temperature {
			return Passing{}, false
		}
	}
	p := Passing{Earliest: Horizon, Latest: Horizon}
	for minute := Horizon; minute >= 0; minute-- {
		low, high := t.Interval(q, minute)
		if high >= limit {
			p.Earliest = minute
		}
		if low >= limit {
			p.Latest = minute
		}
	}
	return p, true
}

// Sentence describes the passing of a limit in °C for people.
func (p Passing) Sentence(limit float64) string {
	return fmt.Sprintf("passes %g °C in %.0f to %.0f min", limit, p.Earliest, p.Latest)
}
