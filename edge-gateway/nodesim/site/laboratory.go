package site

import (
	"math"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
)

// leastLoss and mostLoss are the least and the largest share of a node's readings that are lost.
const leastLoss, mostLoss = 0.15, 0.6

// bench is the place of a node in a laboratory. Sun and heating affect nodes with near numbers alike, as
// if they stood side by side along the walls.
type bench struct {
	corner        uint64  // of those who meet there
	level, dew    float64 // °C
	heated        float64 // of what the heating gives, more than others
	late          float64 // hours from when it is heated
	sunlit, dawn  float64 // °C, from this hour on
	lively, humid float64 // by how much readings are noisy in moving air; %
}

func benchOf(seed, number uint64) bench {
	d := fault.Draws{Seed: seed, Stream: 2<<32 + number}
	near := func(stream uint64) float64 {
		return 1.3*math.Sin(2*math.Pi*(float64(number)/20+fault.Uniform(seed, 40, stream))) + d.Between(-0.2, 0.2)
	}
	return bench{
		corner: number / 4,
		level:  18.5 + 0.2*near(1) + d.Between(-0.6, 0.6), dew: 0.15 * near(2), heated: max(-0.9, 0.7*near(3)), late: d.Between(0, 0.15),
		sunlit: 3.7 * math.Exp(0.5*near(4)), dawn: 8 + 0.8*near(5), lively: 1.3 * math.Exp(d.Between(-0.8, 0.8)), humid: d.Between(-0.5, 0.5),
	}
}

// warmed is the response, from 0 to 1, of air or walls to a source of heat that is on for a time:
// 1 − e^(−t/up), afterwards e^(−t/down). All parameters are hours.
func warmed(since, lasts, up, down float64) float64 {
	switch {
	case since < 0:
		return 0
	case since < lasts:
		return -math.Expm1(-since / up)
	default:
		return -math.Expm1(-lasts/up) * math.Exp(-(since-lasts)/down)
	}
}

// laboratory is what a node of a laboratory would measure: heated from seven on working days, lit
// by the sun, left to cool down at night, with people who move and meet. Its numbers were fitted to
// five days of a real one (the test of run/tools/ml compares twenty statistics).
func (s *Site) laboratory(n node, t float64, nano uint64) fault.Values {
	hours, seed, b := t/3600, s.options.Seed, n.bench
	busy := 0.03
	var warm, sun, dew, blown float64 // blown: the fans that heat in the morning
	for today, day := math.Floor(hours/24), math.Floor(hours/24)-2; day <= today; day++ {
		hour := hours - 24*day
		d := fault.Draws{Seed: seed, Stream: 3<<32 + uint64(day)}
		clear, damp, evening := d.Between(0.75, 1.15), d.Between(0.7, 1.2), d.Between(0.4, 2.4)
		if working(day) {
			warm += 7*(warmed(hour-7-b.late, 11, 0.13, 6)+b.heated*warmed(hour-7-b.late, 3, 0.17, 1.5)) + evening*warmed(hour-18.3, 0.5, 0.2, 5)
			dew += 0.5*b.heated*warmed(hour-7, 1.5, 0.2, 0.5) + 0.9*warmed(hour-7, 11, 0.5, 6)
			blown += warmed(hour-7, 1, 0.05, 0.4)
			busy += 0.5 * warmed(hour-7, 11, 0.3, 0.3)
			clear /= 2 // the rest is cooled away
		}
		busy += 0.4*warmed(hour-8, 10, 0.5, 1) + 0.5*warmed(hour-7.2, 1.5, 0.1, 0.5)
		sun += clear * b.sunlit * warmed(hour-b.dawn, 7, 0.7, 2)
		warm += clear * 3 * warmed(hour-9, 9, 4, 9)
		dew += 3.4 * damp * warmed(hour-8, 9, 3, 8)
	}
	zone := seed<<16 ^ 1<<41 ^ uint64(n.room) //nolint:gosec // small
	met := n.gain * meeting(seed<<16^1<<42^b.corner, hours)
	door, doorDew := doors(n.key, t, 0.15*busy)
	warmth := b.level + warm + sun*(1+0.09*fault.Smooth(seed, 50, hours*2)+0.05*fault.Smooth(seed, 55, hours*6)) +
		1.2*fault.Smooth(seed, 51, hours/50) + 0.7*met + 1.3*door +
		busy*(0.24*fault.Smooth(seed, 52, hours)+0.2*fault.Smooth(zone, 1, hours*1.5)+0.08*fault.Smooth(zone, 2, hours*6)+
			0.08*fault.Smooth(n.key, 1, hours)+0.06*fault.Smooth(n.key, 2, hours*6))
	dew += 5.5 + b.dew + met + doorDew + 1.2*fault.Smooth(seed, 53, hours/40) + 0.05*fault.Smooth(seed, 54, hours) +
		b.lively*busy*(0.07*fault.Smooth(n.key, 3, hours)+0.05*fault.Smooth(n.key, 4, hours*4)+0.03*fault.Smooth(n.key, 5, hours*30))
	noise := 1 + 4*met + 5*blown*b.lively
	return fault.Values{
		Temperature: warmth + 0.007*noise*fault.Normal(n.key, 6, nano),
		Humidity:    reading.RelativeHumidity(warmth, dew) + b.humid + 0.027*noise*fault.Normal(n.key, 7, nano),
	}
}

// meeting is by how much people who meet in a corner raise its dew point, in °C.
func meeting(key uint64, hours float64) (dew float64) {
	slot := math.Floor(hours / 3)
	for _, k := range [2]float64{slot, slot - 1} {
		d := fault.Draws{Seed: key, Stream: uint64(k)}
		if hour := math.Mod(3*k, 24); hour >= 9 && hour <= 18 && d.Between(0, 1) < 0.14 {
			dew += 1.8 * math.Pow(d.Between(0, 1), 2) * warmed(hours-3*k-d.Between(0, 2), d.Between(0.4, 1.5), 0.25, 0.15)
		}
	}
	return dew
}
