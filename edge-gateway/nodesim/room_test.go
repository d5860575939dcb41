package nodesim

import (
	"math"
	"testing"
	"time"
)

// week is long enough for every state that a room has.
const week = 7 * 24 * time.Hour

// furnished returns the sensors of a room at virtual time zero.
func furnished(seed, number uint64, every time.Duration) []sensor {
	r := newRoom(seed, number, every, &scheduledOutages{})
	for r.at < 0 {
		r.step()
	}
	sensors := make([]sensor, nodesPerRoom)
	for i := range sensors {
		sensors[i] = newSensor(r, seed, number*nodesPerRoom+uint64(i))
	}
	return sensors
}

func TestNormalOperation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		for _, s := range furnished(seed, seed, -1) {
			coolest, warmest, driest, dampest := 100.0, -100.0, 100.0, 0.0
			cycles, second := 0, s.room.second
			for at := time.Duration(0); at < week; at += 30 * time.Second {
				temperature, humidity := s.measure(at)
				coolest, warmest = min(coolest, temperature), max(warmest, temperature)
				driest, dampest = min(driest, humidity), max(dampest, humidity)
				if s.room.second != second {
					second = s.room.second
					cycles++
				}
			}
			if coolest < 18 || warmest > 32 {
				t.Errorf("seed %d place %d: %.1f to %.1f °C, want within 18 to 32", seed, s.place, coolest, warmest)
			}
			if driest < 15 || dampest > 49 {
				t.Errorf("seed %d place %d: %.1f to %.1f %%, want within 15 to 49", seed, s.place, driest, dampest)
			}
			if warmest-coolest < 2 {
				t.Errorf("seed %d place %d: only %.1f °C of variation in a week", seed, s.place, warmest-coolest)
			}
			// Half a cycle each; a compressor runs a few times an hour.
			if perHour := float64(cycles) / 2 / week.Hours(); perHour < 1 || perHour > 8 {
				t.Errorf("seed %d: the second stage starts %.1f times an hour", seed, perHour)
			}
		}
	}
}

// Every failure exceeds the default threshold everywhere in its room, and the
// room is itself again within an hour and a half of the repair.
func TestCoolingFailure(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		for _, s := range furnished(seed, seed, 24*time.Hour) {
			failures, hottest := 0, 0.0
			failure := s.room.failure
			for at := time.Duration(0); at < 2*week; at += 30 * time.Second {
				temperature, humidity := s.measure(at)
				if temperature > 75 || humidity < 2 {
					t.Fatalf("seed %d: %.1f °C and %.1f %% at %s", seed, temperature, humidity, at)
				}
				if at >= failure.from && at < failure.to+90*time.Minute {
					hottest = max(hottest, temperature)
					continue
				}
				if at >= failure.to+90*time.Minute {
					if failures++; hottest <= 50 {
						t.Errorf("seed %d place %d: a failure reached only %.1f °C", seed, s.place, hottest)
					}
					failure, hottest = s.room.failure, 0
				}
				if temperature > 32 {
					t.Errorf("seed %d place %d: %.1f °C at %s, though cooling works", seed, s.place, temperature, at)
				}
			}
			if failures < 5 || failures > 30 {
				t.Errorf("seed %d: %d failures in two weeks at a mean of one a day", seed, failures)
			}
		}
	}
}

// Heating takes no water out of the air: relative humidity falls, absolute
// humidity stays.
func TestHumidityFollowsTemperature(t *testing.T) {
	t.Parallel()
	s := furnished(3, 0, -1)[0]
	s.room.scheduled.add(interval{from: time.Hour, to: time.Hour + 20*time.Minute})
	calm, damp := s.measure(time.Hour)
	hottest, dry := s.measure(time.Hour + 20*time.Minute)
	if hottest < calm+25 || dry > damp/2 {
		t.Errorf("from %.1f °C and %.1f %% to %.1f °C and %.1f %%", calm, damp, hottest, dry)
	}
	before, after := damp/100*saturation(calm), dry/100*saturation(hottest)
	if math.Abs(after-before) > 1.5 {
		t.Errorf("absolute humidity went from %.2f to %.2f g/m³", before, after)
	}
}

// Reference values of saturated air, g/m³, as psychrometric tables give them.
func TestSaturation(t *testing.T) {
	t.Parallel()
	for temperature, want := range map[float64]float64{0: 4.85, 20: 17.3, 30: 30.4, 50: 83.0} {
		if got := saturation(temperature); math.Abs(got-want) > 0.01*want {
			t.Errorf("saturation(%g °C) = %.2f, want %.2f g/m³", temperature, got, want)
		}
	}
}

func TestValuesHaveThePrecisionOfTheHardware(t *testing.T) {
	t.Parallel()
	s := furnished(1, 0, 0)[2]
	for at := time.Duration(0); at < 24*time.Hour; at += 30 * time.Second {
		temperature, humidity := s.measure(at)
		if temperature != math.Round(temperature*10)/10 || humidity != math.Round(humidity*10)/10 {
			t.Fatalf("%v °C and %v %% are finer than 0.1", temperature, humidity)
		}
	}
}

func TestNodesOfOneRoomShareIt(t *testing.T) {
	t.Parallel()
	sensors := furnished(9, 4, 6*time.Hour)
	for at := time.Duration(0); at < week; at += time.Hour {
		for i := range sensors {
			sensors[i].advance(at + time.Duration(i)*time.Minute)
		}
		for i := range sensors {
			sensors[i].advance(at + 30*time.Minute)
			if sensors[i].room.air != sensors[0].room.air || sensors[i].room.moisture != sensors[0].room.moisture {
				t.Fatalf("places %d and 0 see different rooms at %s", i, at)
			}
		}
		if sensors[0].temperature >= sensors[3].temperature {
			t.Fatalf("at %s the cold aisle is at %.1f °C, the hot one at %.1f", at, sensors[0].temperature, sensors[3].temperature)
		}
	}
	other := furnished(9, 5, 6*time.Hour)[0]
	other.advance(week - 30*time.Minute)
	if other.room.air == sensors[0].room.air {
		t.Error("two rooms are one")
	}
}

func TestSeedDecidesEveryValue(t *testing.T) {
	t.Parallel()
	series := func(seed uint64, skip int) []float64 {
		s := furnished(seed, 1, 0)[1]
		var values []float64
		for i := range 2880 {
			if i > 0 && i <= skip {
				values = append(values, 0, 0)
				continue
			}
			temperature, humidity := s.measure(time.Duration(i) * 30 * time.Second)
			values = append(values, temperature, humidity)
		}
		return values
	}
	one, again, skipped, other := series(7, 0), series(7, 0), series(7, 100), series(8, 0)
	differ := 0
	for i := range one {
		if one[i] != again[i] {
			t.Fatalf("value %d is %g once and %g again", i, one[i], again[i])
		}
		if i > 201 && one[i] != skipped[i] {
			t.Fatalf("value %d depends on measurements before it", i)
		}
		if one[i] != other[i] {
			differ++
		}
	}
	if differ < len(one)/2 {
		t.Errorf("two seeds differ in %d of %d values", differ, len(one))
	}
}

func TestFailureBefore(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Duration{20 * time.Second, 5 * time.Minute, 3 * time.Hour} {
		for seed := range uint64(5) {
			scheduled := &scheduledOutages{}
			s := newSensor(newRoom(seed, 0, -1, scheduled), seed, 3)
			from := s.failureBefore(at)
			scheduled.add(interval{from: from, to: from + scheduledOutage})
			s.advance(at - 2*time.Minute)
			if s.temperature > 50 {
				t.Errorf("seed %d: %.1f °C two minutes before %s", seed, s.temperature, at)
			}
			s.advance(at + step)
			if s.temperature < 50 {
				t.Errorf("seed %d: %.1f °C at %s, failed %s before", seed, s.temperature, at, at-from)
			}
			if ramp := at - from; ramp < 6*time.Minute || ramp > 12*time.Minute {
				t.Errorf("seed %d: the ramp takes %s", seed, ramp)
			}
		}
	}
}
