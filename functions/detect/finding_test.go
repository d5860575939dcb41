package detect_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// site is live state: rooms of nodes whose air is a function of the time.
type site struct {
	mu      sync.Mutex
	now     time.Time
	rooms   map[int64][]reading.Node
	air     func(node string, at time.Time) (temperature, humidity float64)
	silent  map[string]bool // have sent nothing for an hour
	queries int
	spans   []int64 // of slots, of each query
	asked   func()  // called with each query
	learned []learning.Learned
	width   float64
	err     error
}

func (s *site) clock() time.Time { return s.now }

func (s *site) RoomNodes(_ context.Context, _, room int64, named []string) (nodes []reading.Node, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, in := range s.rooms {
		for _, n := range in {
			if id == room || strings.Contains(strings.Join(named, " "), n.ID) {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes, s.err
}

func (s *site) NodesAir(_ context.Context, _ int64, nodes []reading.Node, from, until int64) (all []learning.NodeAir, err error) {
	if s.asked != nil {
		s.asked()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	s.spans = append(s.spans, until-from)
	for _, n := range nodes {
		a := learning.NodeAir{Node: n, At: s.now.Add(-10 * time.Second), Width: s.width}
		for id, in := range s.rooms {
			if slices.Contains(in, n) {
				a.RoomID = id
			}
		}
		if s.silent[n.ID] {
			a.At = s.now.Add(-time.Hour)
		}
		a.Temperature, a.Humidity = s.air(n.ID, a.At)
		for slot := from; slot < until; slot++ {
			t, h := s.air(n.ID, time.Unix((slot+1)*600-1, 0))
			a.Slots, a.Temperatures, a.Humidities = append(a.Slots, slot), append(a.Temperatures, t), append(a.Humidities, h)
		}
		all = append(all, a)
	}
	return all, s.err
}

func (s *site) RecordLearned(_ context.Context, _ int64, learned []learning.Learned, _ float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.learned = append(s.learned, learned...)
	}
	return s.err
}

// metadata is the database: rooms of one source, predictions of another.
type metadata struct {
	detect.RoomStore
	predictions
}

type predictions interface {
	RecordDetection(ctx context.Context, customer int64, n learning.NewPrediction, most int) (float64, error)
}

// detector has the rules alone and the rooms of the site.
func (s *site) detector() *detect.AnomalyDetector {
	return detect.NewAnomalyDetector(detect.NoModels{}, metadata{RoomStore: s}, detect.Questions, s.clock, logging.Discard())
}

// withoutRooms has models and predictions; the state of rooms cannot be read.
func withoutRooms(models detect.Models, kept predictions) *detect.AnomalyDetector {
	away := &site{err: errors.New("away")}
	return detect.NewAnomalyDetector(models, metadata{away, kept}, detect.Questions, time.Now, logging.Discard())
}

// calm is a room of so many nodes, each with its own offset, that sway together.
func calm(nodes int) *site {
	s := &site{now: noon, rooms: map[int64][]reading.Node{}, air: usualAir}
	for i := range nodes {
		s.rooms[1] = append(s.rooms[1], reading.Node{ID: fmt.Sprintf("n%03d", i)})
	}
	return s
}

func usualAir(node string, at time.Time) (temperature, humidity float64) {
	offset := float64(node[len(node)-1] - '0')
	phase := float64(at.Unix()) / 7000
	noise := math.Mod(float64(at.Unix())*(7.3+offset), 1.7)/10 - 0.08
	return reading.Round(21 + offset/4 + math.Sin(phase) + noise), reading.Round(42 - offset/2 + math.Cos(phase) + 3*noise)
}

// leak lets the air of a node become damp from a time on.
func (s *site) leak(node string, began time.Time) {
	s.air = func(n string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(n, at)
		if n == node && at.After(began) {
			humidity += min(30, 2*at.Sub(began).Minutes())
		}
		return temperature, humidity
	}
}

func (s *site) data(node string, window int) wire.Data {
	d := wire.Data{Reading: reading.Reading{NodeID: node, MessageID: "m", Time: s.now}}
	d.Reading.Temperature, d.Reading.Humidity = s.air(node, s.now)
	for i := window; i > 0; i-- {
		t, h := s.air(node, s.now.Add(time.Duration(-30*i)*time.Second))
		d.Recent.Age = append(d.Recent.Age, float64(30*i))
		d.Recent.Temperature, d.Recent.Humidity = append(d.Recent.Temperature, t), append(d.Recent.Humidity, h)
	}
	return d
}

func sensorInRoom(remembers bool) pipeline.SensorStatus {
	return pipeline.SensorStatus{
		Owned: true, CustomerID: 1, RoomID: 1, Budget: 1, Remembers: remembers,
		Thresholds: &alert.Thresholds{MaxTemperature: 32, MaxHumidity: 90},
	}
}

func ofKind(findings []incident.Finding, kind incident.Kind) (incident.Finding, bool) {
	for _, f := range findings {
		if f.Kind == kind {
			return f, true
		}
	}
	return incident.Finding{}, false
}

// A node whose air leaves its neighbours' is found within the hour, with a reason and a
// band; a room that changes as a whole and a node that is as ever are not.
func TestFindingIsOfTheNodeThatLeavesItsNeighbours(t *testing.T) {
	t.Parallel()
	s := calm(8)
	f := s.detector()
	c := anomaly.Calibrate(nil)
	for _, remembers := range []bool{false, true} {
		found, told := ofKind(f.Find(t.Context(), s.data("n003", 100), sensorInRoom(remembers), c, false), incident.KindAnomaly)
		must.Hold(t, told == remembers && !found.Holds, "a node as ever, remembering %t: %+v", remembers, found)
	}
	began := s.now.Add(10 * time.Minute)
	s.leak("n003", began)
	s.now = began
	var found incident.Finding
	for !found.Holds && s.now.Before(began.Add(time.Hour)) {
		s.now = s.now.Add(30 * time.Second)
		found, _ = ofKind(f.Find(t.Context(), s.data("n003", 100), sensorInRoom(true), c, false), incident.KindAnomaly)
		if other, _ := ofKind(f.Find(t.Context(), s.data("n004", 100), sensorInRoom(true), c, false), incident.KindAnomaly); other.Holds {
			t.Fatalf("its neighbour: %+v", other)
		}
	}
	if !found.Holds || found.Validate() != nil || !strings.Contains(found.Reason, "neighbours") || found.Low >= found.High || found.Value <= found.High {
		t.Errorf("%+v", found)
	}
	if limit := math.Pow(10, -anomaly.Alarm(1)); found.Probability >= limit || found.Probability <= 0 {
		t.Errorf("probability %g, want below %g", found.Probability, limit)
	}
	// A customer who stands thirty as many is told before, of the same score.
	patient := sensorInRoom(true)
	patient.Budget = 30
	must.Equal(t, "a larger budget lowers the alarm", true, anomaly.Alarm(0.3) > anomaly.Alarm(30))
	again, _ := ofKind(f.Find(t.Context(), s.data("n003", 100), patient, c, false), incident.KindAnomaly)
	must.Equal(t, "score by another budget", found.Score, again.Score)
}

// A loss of cooling warms a whole room: no node is unlike its neighbours, but the limit
// is forecast, minutes before it is passed, by the nearest critical limit.
func TestLimitIsForecast(t *testing.T) {
	t.Parallel()
	s := calm(8)
	f := s.detector()
	c := anomaly.Calibrate(nil)
	began := s.now
	s.air = func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if at.After(began) {
			temperature += 20 * (1 - math.Exp(-at.Sub(began).Minutes()/25))
		}
		return temperature, humidity
	}
	sensor := sensorInRoom(true)
	sensor.Thresholds.MaxTemperature = 50
	sensor.Rules = []incident.Rule{
		{Quantity: incident.Temperature, Direction: incident.Above, Limit: 27, Severity: incident.Warning},
		{Quantity: incident.Temperature, Direction: incident.Above, Limit: 32, Severity: incident.Critical},
		{Quantity: incident.Humidity, Direction: incident.Above, Limit: 24, Severity: incident.Critical},
	}
	var found incident.Finding
	for !found.Holds {
		if now, _ := s.air("n003", s.now); now > 32 {
			t.Fatal("the limit was passed without a warning")
		}
		s.now = s.now.Add(30 * time.Second)
		found, _ = ofKind(f.Find(t.Context(), s.data("n003", 100), sensor, c, false), incident.KindForecast)
	}
	if found.Validate() != nil || found.Limit != 32 || !strings.HasPrefix(found.Reason, "passes 32 °C in ") || found.Latest > 30*time.Minute {
		t.Errorf("%+v", found)
	}
	now, _ := s.air("n003", s.now)
	passed := s.now
	for at := now; at < 32; at, _ = s.air("n003", passed) {
		passed = passed.Add(30 * time.Second)
	}
	lead := passed.Sub(s.now)
	must.Hold(t, lead >= max(5*time.Minute, found.Earliest) && lead <= found.Latest+time.Minute,
		"warned %s before, with %+v", lead, found)
	s.now = passed.Add(time.Minute)
	over, judged := ofKind(f.Find(t.Context(), s.data("n003", 100), sensor, c, false), incident.KindForecast)
	must.Hold(t, judged && (!over.Holds || over.Limit > 32), "after the limit: %+v", over)
	// What came late helps nobody.
	late := s.data("n003", 100)
	s.now = s.now.Add(10 * time.Minute)
	_, judged = ofKind(f.Find(t.Context(), late, sensor, c, false), incident.KindForecast)
	must.Equal(t, "a late forecast", false, judged)
}

// Sensors that send half as often, or whose readings are lost, are one notice of the room if they
// are most of it, and none if they are not; nor is an hour in which the gateway was away.
func TestOtherIntervalIsOneNotice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slower  int // of eight nodes
		seconds float64
		away    bool
		want    bool
	}{
		{0, 60, false, false}, {3, 60, false, false}, {4, 60, false, true}, {8, 60, false, true}, {8, 41, false, false}, {8, 44, false, true}, {8, 30, true, false},
	} {
		s := calm(8)
		var past []anomaly.NodeHours
		for _, n := range s.rooms[1] {
			past = append(past, anomaly.NodeHours{Node: n.ID, Room: "1", Instrument: anomaly.Instrument{Grid: 0.1, Interval: 30}})
		}
		calibration, f := anomaly.Calibrate(past), s.detector()
		told := map[string]string{}
		for range 25 { // twelve minutes
			for i, n := range s.rooms[1] {
				d, every := s.data(n.ID, 100), 30.0
				if i < c.slower {
					every = c.seconds
				}
				d.Recent = reading.Window{}
				for k := min(100, int(3600/every)); k > 0; k-- {
					ago := every * float64(k)
					if c.away && ago > 600 && ago < 2400 {
						continue
					}
					temperature, humidity := s.air(n.ID, s.now.Add(-time.Duration(ago*float64(time.Second))))
					d.Recent.Age = append(d.Recent.Age, ago)
					d.Recent.Temperature, d.Recent.Humidity = append(d.Recent.Temperature, temperature), append(d.Recent.Humidity, humidity)
				}
				found, _ := ofKind(f.Find(t.Context(), d, sensorInRoom(false), calibration, false), incident.KindAnomaly)
				if found.Holds {
					if err := found.Validate(); err != nil || found.Cause != "interval" {
						t.Fatalf("%+v, %v", found, err)
					}
					told[n.ID] = found.Reason
				}
			}
			s.now = s.now.Add(30 * time.Second)
		}
		want := 0
		if c.want {
			want = c.slower
		}
		must.Equal(t, fmt.Sprintf("told of %+v", c), want, len(told))
		for _, reason := range told {
			must.Contain(t, "the reason", reason, fmt.Sprintf("every %.0f s instead of 30 s", c.seconds))
		}
	}
}

// A room costs a query in 20 seconds, however many readings come.
func TestRoomIsAskedForOnceInTwentySeconds(t *testing.T) {
	t.Parallel()
	s := calm(10)
	f := s.detector()
	c := anomaly.Calibrate(nil)
	for range 3 {
		var group sync.WaitGroup
		for i := range 10 {
			d := s.data(fmt.Sprintf("n%03d", i), 20)
			group.Go(func() {
				for range 50 {
					f.Find(t.Context(), d, sensorInRoom(false), c, false)
				}
			})
		}
		group.Wait()
		s.now = s.now.Add(detect.RoomTTL)
	}
	must.Equal(t, "queries for 1500 readings in a minute", 3, s.queries)
	for _, wait := range []time.Duration{10 * time.Minute, time.Hour} {
		s.now = s.now.Add(wait)
		f.Find(t.Context(), s.data("n003", 20), sensorInRoom(false), c, false)
	}
	must.Equal(t, "slots: the day at first and each hour, two each ten minutes", []int64{143, 0, 0, 2, 143}, s.spans)
	// One reading waits for an answer, the others are judged by what was known.
	s.now = s.now.Add(detect.RoomTTL)
	asked, answer := make(chan struct{}), make(chan struct{})
	s.asked = func() { close(asked); <-answer }
	var waiting sync.WaitGroup
	first, next := s.data("n003", 20), s.data("n004", 20)
	waiting.Go(func() { f.Find(t.Context(), first, sensorInRoom(false), c, false) })
	<-asked
	_, judged := ofKind(f.Find(t.Context(), next, sensorInRoom(true), c, false), incident.KindAnomaly)
	must.Equal(t, "a second reading is judged while the first waits", true, judged)
	close(answer)
	waiting.Wait()
	s.asked = nil
	// While the database is unavailable, what was known serves.
	s.err = errors.New("away")
	s.now = s.now.Add(time.Minute)
	_, judged = ofKind(f.Find(t.Context(), s.data("n003", 100), sensorInRoom(true), c, false), incident.KindAnomaly)
	must.Equal(t, "one is judged while the database is away", true, judged)
	stateless := (&site{err: errors.New("away")}).detector()
	found := stateless.Find(t.Context(), s.data("n003", 100), sensorInRoom(true), c, false)
	must.Equal(t, "findings without a state", 0, len(found))
}

// The neighbours are those that the calibration names, in other rooms too. Without one the
// room's nodes stand for them, here too few to be compared with.
func TestNeighboursAreThoseOfTheCalibration(t *testing.T) {
	t.Parallel()
	var past []anomaly.NodeHours
	var names []string
	var others []reading.Node
	for i := range 5 {
		others = append(others, reading.Node{ID: fmt.Sprintf("m%03d", 4+i)})
		names = append(names, others[i].ID)
		past = append(past, anomaly.NodeHours{Node: others[i].ID, Room: "2"})
	}
	named := anomaly.Calibrate(append(past, anomaly.NodeHours{Node: "n002", Room: "1", Neighbours: names}))
	for _, compared := range []bool{false, true} {
		s := calm(3)
		s.rooms[2] = others
		began := s.now
		s.leak("n002", began)
		f, c := s.detector(), anomaly.Calibrate(nil)
		if compared {
			c = named
		}
		var found incident.Finding
		for !found.Holds && s.now.Before(began.Add(time.Hour)) {
			s.now = s.now.Add(30 * time.Second)
			found, _ = ofKind(f.Find(t.Context(), s.data("n002", 100), sensorInRoom(true), c, false), incident.KindAnomaly)
		}
		must.Hold(t, found.Holds && strings.Contains(found.Reason, "neighbours") == compared,
			"with named neighbours %t: %+v", compared, found)
	}
}

// The nodes of the rooms that were heard last stay in the cache.
func TestRoomsThatWereHeardLastStay(t *testing.T) {
	t.Parallel()
	s := calm(5)
	s.rooms[2], s.rooms[3] = []reading.Node{{ID: "n011"}, {ID: "n012"}, {ID: "n013"}}, []reading.Node{{ID: "n021"}, {ID: "n022"}, {ID: "n023"}}
	f := s.detector()
	f.Bound(8)
	c := anomaly.Calibrate(nil)
	for i, visit := range []struct {
		room    int64
		node    string
		queries int
	}{{1, "n001", 1}, {2, "n011", 2}, {1, "n001", 2}, {3, "n021", 3}, {1, "n001", 3}, {3, "n021", 3}, {2, "n011", 4}, {3, "n021", 4}, {1, "n001", 5}} {
		sensor := sensorInRoom(false)
		sensor.RoomID = visit.room
		f.Find(t.Context(), s.data(visit.node, 20), sensor, c, false)
		must.Equal(t, fmt.Sprint("queries of visit ", i), visit.queries, s.queries)
	}
}

// A reading without a window, as after the start of a gateway, is judged by what ingest
// has kept, and the node's state says so until a window comes.
func TestWithoutWindowLiveStateStands(t *testing.T) {
	t.Parallel()
	s := calm(8)
	stuck := func(node string, at time.Time) (float64, float64) {
		if node == "n003" {
			at = noon.Add(-8 * time.Hour)
		}
		return usualAir(node, at)
	}
	s.air = stuck
	found, _ := ofKind(s.detector().Find(t.Context(), s.data("n003", 0), sensorInRoom(false), anomaly.Calibrate(nil), false), incident.KindAnomaly)
	must.Hold(t, !found.Holds, "a node of which nobody knows whether it is coarse: %+v", found)
	f := s.detector()
	c := calmWeek(noon, "n003")
	found, _ = ofKind(f.Find(t.Context(), s.data("n003", 0), sensorInRoom(false), c, false), incident.KindAnomaly)
	must.Hold(t, found.Holds && strings.HasPrefix(found.Reason, "unchanged for "),
		"a node that was stuck for hours: %+v", found)
	// One reading that lies apart waits for the next where others came before it.
	s.air = func(node string, at time.Time) (float64, float64) {
		temperature, humidity := stuck(node, at)
		if node == "n004" && at.After(noon.Add(-time.Second)) {
			temperature += 25
		}
		return temperature, humidity
	}
	for window, holds := range map[int]bool{0: true, 50: false} {
		other := s.detector()
		found, _ := ofKind(other.Find(t.Context(), s.data("n004", window), sensorInRoom(false), c, false), incident.KindAnomaly)
		must.Equal(t, fmt.Sprintf("25 °C more, with %d readings before", window), holds, found.Holds)
	}
	s.air = stuck
	for i, by := range []learning.JudgedBy{learning.ByLiveState, learning.ByWindow} {
		s.err = errAway // it is written the next time
		s.now = s.now.Add(detect.RoomTTL)
		f.Find(t.Context(), s.data("n003", 50*i), sensorInRoom(false), c, false)
		s.err = nil
		s.now = s.now.Add(detect.RoomTTL)
		f.Find(t.Context(), s.data("n003", 50), sensorInRoom(false), c, false)
		must.Hold(t, len(s.learned) == i+1 && s.learned[i].JudgedBy == by && s.learned[i].ID == "n003",
			"learned %+v, want %s", s.learned, by)
		s.now = s.now.Add(detect.RoomTTL)
	}
	// One without, as after the start of its gateway, changes nothing.
	for _, window := range []int{0, 50, 50} {
		f.Find(t.Context(), s.data("n003", window), sensorInRoom(false), c, false)
		s.now = s.now.Add(detect.RoomTTL)
	}
	must.Equal(t, "learned", 2, len(s.learned))
}

// What the readings teach of the width of intervals reaches the database, each ten minutes, once.
func TestWidthIsKept(t *testing.T) {
	t.Parallel()
	s := calm(8)
	f := s.detector()
	c := anomaly.Calibrate(nil)
	want, taught := 0.0, 0
	for range 45 { // 22 minutes
		d := s.data("n003", 100)
		width := anomaly.Width(anomaly.FirstWidth + want)
		if next, _, known := width.Update(d.Recent, d.Reading); known {
			want += float64(next) - float64(width)
			taught++
		}
		f.Find(t.Context(), d, sensorInRoom(false), c, false)
		s.mu.Lock()
		s.width = anomaly.FirstWidth
		for _, l := range s.learned {
			s.width += l.Wider
		}
		s.mu.Unlock()
		s.now = s.now.Add(30 * time.Second)
	}
	s.now = s.now.Add(10 * time.Minute)
	f.Find(t.Context(), s.data("n003", 0), sensorInRoom(false), c, false)
	got := 0.0
	for _, l := range s.learned {
		got += l.Wider
	}
	must.Hold(t, taught >= 40 && math.Abs(got-want) <= 1e-9 && len(s.learned) <= 6,
		"learned %g in %d writes, want %g of %d readings", got, len(s.learned), want, taught)
}

// The cache holds the nodes that docs/learning.md says in the memory that it says.
func TestMemoryOfRooms(t *testing.T) { //nolint:paralleltest // it measures the heap
	const nodes, inRoom, kilobytes = 5000, 50, 2.0
	s := calm(0)
	for i := range nodes {
		room := int64(1 + i/inRoom)
		s.rooms[room] = append(s.rooms[room], reading.Node{ID: fmt.Sprintf("node-%06d", i)})
	}
	f := s.detector()
	c := anomaly.Calibrate(nil)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for room, in := range s.rooms {
		for _, n := range in {
			sensor := sensorInRoom(false)
			sensor.RoomID = room
			f.Find(t.Context(), s.data(n.ID, 30), sensor, c, false)
		}
	}
	each := float64(heap()-before) / nodes / 1024
	must.Hold(t, each <= kilobytes, "%.2f KB for each node, want at most %g", each, kilobytes)
	t.Logf("%.2f KB for each node, %.0f MB for %d", each, each*detect.MaxNodes/1024, detect.MaxNodes)
	runtime.KeepAlive(f)
}
