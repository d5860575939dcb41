package nodesim

import (
	"math"
	"time"
)

const (
	sensorLag        = 20 * time.Second // of the housing
	temperatureNoise = 0.12             // °C, standard deviation
	humidityNoise    = 0.4              // % relative humidity, standard deviation
)

// sensor is the measuring part of a node: its position in a room and its errors of
// measurement.
type sensor struct {
	room  room
	seed  uint64
	place uint64 // number of the node, the stream of its noise

	rise         float64 // °C above room air at nominal load: cold aisle to hot aisle
	bias         float64 // °C of calibration
	humidityBias float64 // % relative humidity of calibration
	temperature  float64 // °C in the housing, behind the air by sensorLag
}

// positionOffsets are the rises of the positions in a room, °C at nominal load: low and
// high in the cold aisle, in the return air, in the hot aisle.
func positionOffsets() [nodesPerRoom]float64 { return [nodesPerRoom]float64{0.4, 1.5, 3.5, 5.4} }

// noiseStream separates the random numbers of sensors from those of rooms.
const noiseStream = 1 << 32

// newSensor puts the sensor of a node into a room.
func newSensor(r room, seed, number uint64) sensor {
	c := newRNG(seed, noiseStream+number)
	s := sensor{room: r, seed: seed, place: number}
	s.rise = positionOffsets()[number%nodesPerRoom] + c.uniform(-0.3, 0.3)
	s.bias = c.uniform(-0.2, 0.2)
	s.humidityBias = c.uniform(-1, 1)
	s.temperature = r.air + s.rise*r.load
	return s
}

// advance runs the room and the housing up to a virtual time.
func (s *sensor) advance(to time.Duration) {
	for s.room.at+step <= to {
		s.room.step()
		here := s.room.air + s.rise*s.room.load
		s.temperature += step.Seconds() / sensorLag.Seconds() * (here - s.temperature)
	}
}

// measure returns the measurement at a virtual time, in °C and % relative humidity,
// in steps of 0.1. Times must not run backwards. The noise depends only on the time:
// leaving out a reading changes none of the later ones.
func (s *sensor) measure(at time.Duration) (temperature, humidity float64) {
	s.advance(at)
	noise := newRNG(s.seed^uint64(at), noiseStream+s.place) //nolint:gosec // any bits will do for a seed
	temperature = s.temperature + s.bias + temperatureNoise*noise.normal()
	humidity = 100*s.room.moisture/saturation(s.temperature) + s.humidityBias + humidityNoise*noise.normal()
	return roundToTenth(temperature, -40, 125), roundToTenth(humidity, 0, 100)
}

// roundToTenth rounds a value to the precision of the hardware, within its range.
func roundToTenth(value, lowest, highest float64) float64 {
	return math.Round(max(lowest, min(highest, value))*10) / 10
}

// hot is the temperature, in °C, that every cooling failure exceeds: the
// default threshold, and a little for noise.
const hot = 50.5

// failureBefore returns the virtual time at which cooling must fail so that the
// sensor is hot at a given time. It does not advance the sensor itself.
func (s *sensor) failureBefore(at time.Duration) time.Duration {
	from := at - 9*time.Minute
	for range 3 { // the ramp hardly depends on its beginning, so this settles at once
		trial := *s
		trial.room.scheduled = &scheduledOutages{spans: []interval{{from: from, to: math.MaxInt64}}}
		for trial.temperature < hot && trial.room.at < at+time.Hour {
			trial.advance(trial.room.at + step)
		}
		from += at - trial.room.at
	}
	return from
}
