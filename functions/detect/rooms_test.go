package detect_test

import (
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
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
