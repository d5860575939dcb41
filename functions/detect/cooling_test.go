package detect_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// A node that has moved is one of its new room within [detect.RoomTTL], and of its old one no
// longer: four calm ones that have left do not hide that the other three lose their cooling.
func TestMovedNodeIsOfItsNewRoom(t *testing.T) {
	t.Parallel()
	s := calm(7)
	f, c := s.detector(), calmWeek(s.now)
	began := s.now
	s.air = func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if at.After(began) && node < "n003" {
			temperature += at.Sub(began).Minutes()
		}
		return temperature, humidity
	}
	for _, n := range s.rooms[1] {
		f.Find(t.Context(), s.data(n.ID, 100), sensorInRoom(false), c, false)
	}
	s.rooms[1], s.rooms[2] = s.rooms[1][:3], s.rooms[1][3:]
	told := map[string]string{}
	for range 6 {
		s.now = s.now.Add(30 * time.Second)
		for _, n := range s.rooms[1] {
			found, _ := ofKind(f.Find(t.Context(), s.data(n.ID, 100), sensorInRoom(false), c, false), incident.KindAnomaly)
			told[n.ID] = found.Reason
		}
	}
	for _, node := range []string{"n000", "n001", "n002"} {
		must.Contain(t, node, told[node], "the room's temperature (3 sensors) rose")
	}
}

// calmWeek is the calibration of room 1 whose air was calm for eight days before a time.
func calmWeek(until time.Time) *anomaly.Calibration {
	var week []anomaly.Climate
	for hours := 24 * 8; hours > 0; hours-- {
		hour := anomaly.Unheard(until.Add(-time.Duration(hours) * time.Hour))
		for _, level := range []float32{20, 23} {
			hour.Add(anomaly.Moves{Change: [4]float32{.1, .2, .3, .4}, Level: level})
		}
		week = append(week, hour)
	}
	return anomaly.Calibrate([]anomaly.NodeHours{{Room: "1", Air: week}})
}

// A loss of cooling in one room whose past is calm: told within two minutes of its begin and
// before 32 °C, as too hot, of every node that warms, and of none of a room that does not.
func TestLossOfCoolingIsReportedWithinTwoMinutes(t *testing.T) {
	t.Parallel()
	s := calm(4)
	s.rooms[2] = []reading.Node{{ID: "n011"}, {ID: "n012"}, {ID: "n013"}, {ID: "n014"}}
	f := s.detector()
	began := s.now
	c := calmWeek(began)
	s.air = func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if at.After(began) && node < "n010" {
			temperature += 36 / (1 - math.Exp(-20.0/30)) * (1 - math.Exp(-at.Sub(began).Minutes()/30))
		}
		return temperature, humidity
	}
	told := map[string]incident.Finding{}
	for range 4 { // two minutes
		s.now = s.now.Add(30 * time.Second)
		for room, nodes := range map[int64][]string{1: {"n000", "n001", "n002", "n003"}, 2: {"n011", "n012", "n013", "n014"}} {
			sensor := sensorInRoom(false)
			sensor.RoomID = room
			for _, node := range nodes {
				d := s.data(node, 100)
				if found, ok := ofKind(f.Find(t.Context(), d, sensor, c, false), incident.KindAnomaly); ok && found.Holds {
					if _, before := told[node]; !before {
						told[node] = found
					}
				}
				late := s.data(node, 100) // a backlog comes beside it, and hides nothing
				late.Reading.Time = late.Reading.Time.Add(-6 * time.Hour)
				f.Find(t.Context(), late, sensor, c, false)
				d.Reading.Temperature = reading.Missing() // its humidity comes apart, and hides nothing
				found, ok := ofKind(f.Find(t.Context(), d, sensor, c, false), incident.KindAnomaly)
				must.Hold(t, !ok || !found.Holds, "the humidity of %s: %+v", node, found)
			}
		}
	}
	for node, found := range told {
		must.Hold(t, node <= "n010", "%s, whose room is as ever: %+v", node, found)
		if found.Value >= 32 || found.Value <= found.High || found.Quantity != incident.Temperature || found.Validate() != nil || !strings.Contains(found.Reason, " rose ") {
			t.Errorf("%s: %+v", node, found)
		}
		must.Equal(t, fmt.Sprintf("%s: %s", node, found.Cause), incident.TooHot, incident.CauseOf(incident.KindAnomaly, found.Quantity, incident.Above, found.Cause))
	}
	must.Equal(t, "nodes told of within two minutes", 4, len(told))
}
