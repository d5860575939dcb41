package anomaly

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
)

// Reason is why a reading is unusual, for a person.
type Reason struct {
	Statistic Statistic
	Value     float64 // in its unit, signed
	Usual     float64 // the size, in its unit, that this node exceeds once a month, of roughness once a day
	Score     float64 // see [Calibration.Score]

	// The usual band of the temperature or dew point in °C, for the chart; Quantity is empty if there is none.
	Quantity  string
	Low, High float64
}

// Explain says why a reading has its score. It is for alarms; [Calibration.Score] is for every reading.
func (c *Calibration) Explain(node, room string, r reading.Reading, v Values) Reason {
	u, hour := c.of(node, room), r.Time.UTC().Hour()
	most, by := c.most(u, hour, v.worth())
	// Readings that hardly ever go to and fro do not at all in the roughest hour of a day.
	usual, rough := c.exceeded(u, hour, by, 1), max(kinds()[Roughness].least, c.exceeded(u, hour, Roughness, 30))
	if by == Roughness || v[Roughness] > rough && kinds()[by].quantity == "dew_point" { // which noise moves, and sooner
		by, usual = Roughness, rough
	}
	reason := Reason{Statistic: by, Value: v[by], Score: c.all.surprise(most), Usual: usual}
	now := 0.0
	switch reason.Quantity = kinds()[by].quantity; reason.Quantity {
	case "temperature":
		now = r.Temperature
	case "dew_point":
		now = reading.DewPoint(r.Temperature, r.Humidity)
	default:
		return reason
	}
	reason.Low, reason.High = now-v[by]-reason.Usual, now-v[by]+reason.Usual
	return reason
}

// exceeded is the size of a statistic that occurs so many times a month at an hour of the day, at most its believed one.
func (c *Calibration) exceeded(u usual, hour int, s Statistic, times float64) float64 {
	t, k := c.tails[s], kinds()[s]
	z := t.Ranks[len(t.Ranks)-1] + (Alarm(times)-logShare(tailShare))*(t.Excess*math.Ln10) + float64(c.rhythm[s][hour])
	strength := float64(u.Middle[s]) + u.spread(s)*z
	if s == Roughness {
		strength = math.Exp(strength) - 1
	}
	return min(k.believed, k.floor*(math.Exp(strength)-1))
}

// Band is the range in which a value is usual; NaN if unknown.
type Band struct{ Low, High float64 }

// Bands are the usual ranges of a node's temperature and dew point in a slot, in °C, by its day
// before. Values leave them by changes over an hour or more about once a month. They ignore the
// neighbours and shorter changes.
func (c *Calibration) Bands(node, room string, slot int64, day *Day) (temperature, dewPoint Band) {
	u, middle := c.of(node, room), day.Median(slot)
	at := int(slot / hour % hoursOfDay)
	// within narrows a band by what a change since then may be, see departed.
	within := func(b Band, s Statistic, then, middle float64) Band {
		own := c.exceeded(u, at, s, 1)
		return Band{larger(b.Low, min(then, middle)-own), -larger(-b.High, -max(then, middle)-own)}
	}
	temperature, dewPoint = Band{math.NaN(), math.NaN()}, Band{math.NaN(), math.NaN()}
	temperature = within(temperature, OwnTemperature1, day.At(slot-hour).Temperature, middle.Temperature)
	temperature = within(temperature, OwnTemperature2, day.At(slot-twoHours).Temperature, middle.Temperature)
	dewPoint = within(dewPoint, OwnDewPoint60, day.At(slot-hour).DewPoint, middle.DewPoint)
	dewPoint = within(dewPoint, OwnDewPoint240, day.At(slot-fourHours).DewPoint, middle.DewPoint)
	return temperature, dewPoint
}

// String is the reason as a sentence without a full stop.
func (r Reason) String() string {
	size, kind := math.Abs(r.Value), kinds()[r.Statistic]
	way, moved := "above", "rose"
	if r.Value < 0 {
		way, moved = "below", "fell"
	}
	switch r.Statistic {
	case Unchanged:
		return fmt.Sprintf("unchanged for %.0f min", r.Value/60)
	case DewPointLevel:
		return fmt.Sprintf("dew point %.1f °C %s what its neighbours and its own day say", size, way)
	case Roughness:
		return fmt.Sprintf("readings go to and fro, %.1f times as much as in its roughest hour of a day", r.Value/r.Usual)
	default:
		return fmt.Sprintf("%s %s %.1f °C %s", strings.ReplaceAll(kind.quantity, "_", " "), moved, size, kind.change)
	}
}

// Joined is how far apart alarms of one episode may lie.
const Joined = 30 * time.Minute

// Episode is a stretch of alarms of one node, which people are told of once.
type Episode struct{ Start, End time.Time }

// unhealthy bounds the share of a node's hours that verdicts may remove from its past: if a
// state lasted longer, it is usual.
const unhealthy = 0.05

// PastHour is an hour of a node, with its start.
type PastHour struct {
	Start time.Time
	Hour
	Instrument Instrument // that measured it
}

// learnedAnew is how many hours an instrument must have measured to count.
const learnedAnew = 72

// Healthy returns the hours of a node that count for calibration, and their hours of the day. It
// leaves out episodes that people judged right, with the two hours after each, the newest first
// and at most a twentieth of all hours. Episodes that were wrong, expected or not judged stay. It
// also returns the instrument that counts: the newest that has measured for learnedAnew, or the
// first. Hours of another instrument lack the statistics that depend on it.
func Healthy(past []PastHour, right []Episode) (healthy []Hour, at []uint8, now Instrument) {
	hours := 0
	for _, h := range slices.Backward(past) {
		switch {
		case h.Instrument == Instrument{}:
		case hours == 0, hours < learnedAnew && h.Instrument.unlike(now) != "":
			now, hours = h.Instrument, 1
		case h.Instrument.unlike(now) == "":
			hours++
		}
	}
	past = slices.Clone(past)
	for i := range past {
		switch past[i].Instrument.unlike(now) {
		case "digits":
			past[i].Hour = Quiet()
		case "interval":
			past[i].Hour[Unchanged], past[i].Hour[Roughness] = float32(math.NaN()), float32(math.NaN())
		}
	}
	for _, h := range healthyOf(past, func(h PastHour) time.Time { return h.Start }, right) {
		healthy, at = append(healthy, h.Hour), append(at, uint8(h.Start.UTC().Hour())) //nolint:gosec // of a day
	}
	return healthy, at, now
}

// HealthyAir is [Healthy] for the air of a node or a room.
func HealthyAir(past []Climate, right []Episode) []Climate {
	return healthyOf(past, func(c Climate) time.Time { return c.Start }, right)
}

func healthyOf[H any](past []H, start func(H) time.Time, right []Episode) []H {
	left := int(unhealthy * float64(len(past)))
	healthy := slices.Clone(past)
	for _, e := range slices.Backward(right) {
		healthy = slices.DeleteFunc(healthy, func(h H) bool {
			out := left > 0 && start(h).Add(time.Hour).After(e.Start) && start(h).Before(e.End.Add(2*time.Hour))
			if out {
				left--
			}
			return out
		})
	}
	return healthy
}
