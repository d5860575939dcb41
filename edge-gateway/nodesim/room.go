package nodesim

import (
	"math"
	"sync"
	"time"
)

// The thermal model of a room. It works with rates, so that it needs no masses.
// The racks heat the air. The first cooling stage always runs, the second by a
// thermostat with hysteresis, and standby units start when the room is far too
// warm.
const (
	step = 5 * time.Second // of the integration

	heating     = 0.045 // °C/s at nominal rack load without cooling: 2.7 °C a minute, a dense room
	firstStage  = 0.8   // cooling as a share of nominal heat
	secondStage = 0.4
	standby     = 0.4
	standbyFrom = 28.0 // °C of room air
	leak        = 0.0002
	outside     = 22.0 // °C behind the walls; leak is per second and °C of difference

	coolingLag = 40 * time.Second // of compressor and coil, both ways
	loadLag    = 60 * time.Second // of fans and silicon behind a job
	halfBand   = 1.0              // °C of hysteresis on each side of the setpoint

	// Servers throttle and then shut down in hot air, which bounds a failure.
	throttleFrom = 42.0 // °C
	throttleTo   = 62.0 // °C
	throttled    = 0.1  // share of the load that is left there

	lowestLoad  = 0.84 // of nominal; what two stages can hold within the band
	highestLoad = 1.16

	moistureLag = time.Hour // of the air change
	coilPoint   = 6.5       // g/m³ at the coil's dew point
)

// interval is a span of virtual time in which a room has no cooling.
type interval struct{ from, to time.Duration }

// scheduledOutages are the failures of a room that do not come by chance. All copies
// of the room share them.
type scheduledOutages struct {
	mu    sync.RWMutex
	spans []interval
}

func (o *scheduledOutages) add(s interval) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spans = append(o.spans, s)
}

func (o *scheduledOutages) cover(at time.Duration) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, s := range o.spans {
		if s.from <= at && at < s.to {
			return true
		}
	}
	return false
}

// room is the state of one server room at one virtual time. It is a value: every
// node advances a copy of its own, and all copies pass through the same states. So
// the nodes of a room agree and never wait for each other.
type room struct {
	chance    rng
	scheduled *scheduledOutages

	at       time.Duration // virtual time since the start, negative while warming up
	air      float64       // °C
	moisture float64       // g/m³, absolute humidity
	load     float64       // of nominal
	output   float64       // cooling, as a share of nominal heat

	setpoint float64 // °C
	supply   float64 // g/m³ of the fresh air

	second, reserve bool // stages running
	job             float64
	jobUntil        time.Duration
	failure         interval // the next one by chance, or the present one
	every           time.Duration
}

// warmUp is how long rooms run before the first reading, so that their cooling has
// settled when the nodes are switched on.
const warmUp = 3 * time.Hour

// newRoom returns a room at virtual time zero after warming up. every is the
// mean virtual time between cooling failures; 0 means none by chance.
func newRoom(seed, number uint64, every time.Duration, scheduled *scheduledOutages) room {
	r := room{chance: newRNG(seed, number), scheduled: scheduled, at: -warmUp, load: 1, output: 1, every: every}
	r.setpoint = r.chance.uniform(21.5, 22.5)
	r.supply = r.chance.uniform(7.2, 7.7)
	r.air, r.moisture = r.setpoint, r.supply
	r.failure = r.nextFailure(warmUp)
	return r
}

// nextFailure draws the next failure. Until then the room works for at least a
// quarter of the mean time, and for at least rest.
func (r *room) nextFailure(rest time.Duration) interval {
	if r.every <= 0 {
		return interval{from: math.MaxInt64, to: math.MaxInt64}
	}
	from := r.at + max(rest, r.every/4) + r.chance.waiting(r.every*3/4)
	return interval{from: from, to: from + r.outage()}
}

// outage draws how long a repair takes: long enough that every node of the room
// passes 50 °C.
func (r *room) outage() time.Duration { return r.chance.between(16*time.Minute, 22*time.Minute) }

// failed reports whether the room is without cooling now.
func (r *room) failed() bool {
	return r.failure.from <= r.at && r.at < r.failure.to || r.scheduled.cover(r.at)
}

// step advances the room by one integration step.
func (r *room) step() {
	dt := step.Seconds()
	r.at += step
	if r.at >= r.failure.to {
		r.failure = r.nextFailure(2 * time.Hour)
	}
	r.stepLoad(dt)
	r.stepCooling(dt)
	r.air += dt * (heating*(r.load-r.output) - leak*(r.air-outside))

	fresh := r.supply + 0.2*math.Sin(day(r.at)-2)
	r.moisture += dt * (fresh - r.moisture) / moistureLag.Seconds()
	if r.output > firstStage && r.moisture > coilPoint {
		r.moisture -= dt * 0.0001 * (r.moisture - coilPoint)
	}
}

// stepLoad changes the rack load: over the day, with jobs that start and end, and
// by servers that throttle in hot air.
func (r *room) stepLoad(dt float64) {
	if r.at >= r.jobUntil {
		r.job = r.chance.uniform(-0.08, 0.08)
		r.jobUntil = r.at + 2*time.Minute + r.chance.waiting(20*time.Minute)
	}
	wanted := max(lowestLoad, min(highestLoad, 1+0.07*math.Sin(day(r.at))+r.job))
	if r.air > throttleFrom {
		share := min(1, (r.air-throttleFrom)/(throttleTo-throttleFrom))
		wanted *= 1 - share*(1-throttled)
	}
	r.load += dt * (wanted - r.load) / loadLag.Seconds()
}

func (r *room) stepCooling(dt float64) {
	switch {
	case r.air > r.setpoint+halfBand:
		r.second = true
	case r.air < r.setpoint-halfBand:
		r.second = false
	}
	switch {
	case r.air > standbyFrom:
		r.reserve = true
	case r.air < r.setpoint+halfBand:
		r.reserve = false
	}
	target := firstStage
	if r.second {
		target += secondStage
	}
	if r.reserve {
		target += standby
	}
	if r.failed() {
		target = 0
	}
	r.output += dt * (target - r.output) / coolingLag.Seconds()
}

// day is the angle of the daily course; virtual time zero is nine in the
// morning, when the load rises.
func day(at time.Duration) float64 { return 2 * math.Pi * at.Hours() / 24 }

// saturation is the most water, in g/m³, that air of a temperature in °C holds
// (Magnus formula with the constants of WMO-No. 8, and the ideal gas law).
func saturation(temperature float64) float64 {
	pressure := 6.112 * math.Exp(17.62*temperature/(243.12+temperature)) // hPa
	return 216.7 * pressure / (273.15 + temperature)
}
