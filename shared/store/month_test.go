package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// long is for make incidents: the months and days of which the tests take a part.
func long() bool { return os.Getenv("INCIDENTS") == "long" }

// judgeWorker is what the test binary does as a process that is killed: it judges the
// readings that come on standard input, a JSON value a line, and says so of each.
func judgeWorker(address string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return 1
	}
	defer pool.Close()
	s := pgtest.NewStores(pool)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var j incidents.Judged
		if json.Unmarshal(lines.Bytes(), &j) != nil {
			return 1
		}
		if s.UpdateNodeStates(ctx, []pipeline.NodeReading{{Reading: j.Reading}}) != nil || s.Judge(ctx, j) != nil {
			return 1
		}
		fmt.Println("judged")
	}
	return 0
}

// killed runs the deliveries through so many processes, each of which is killed while
// it judges; what a killed one has not answered is delivered again.
func killed(t *testing.T, address string, deliveries []incidents.Judged, kills int) {
	t.Helper()
	const inFlight = 20
	random := rand.New(rand.NewPCG(11, 11))
	for process := 0; len(deliveries) > 0; process++ {
		worker := exec.CommandContext(t.Context(), os.Args[0])
		worker.Env = append(os.Environ(), "JUDGE_WORKER="+address)
		in := must.Get(worker.StdinPipe())(t)
		out := must.Get(worker.StdoutPipe())(t)
		must.Do(t, worker.Start())
		share := len(deliveries)
		if process < kills {
			share = len(deliveries)/(kills+1-process) + random.IntN(10)
		}
		batch := deliveries[:min(share, len(deliveries))]
		go feed(in, batch)
		answers, answered := bufio.NewScanner(out), 0
		for answers.Scan() {
			if answered++; process < kills && answered >= len(batch)-inFlight/2 {
				_ = worker.Process.Kill() // it has the next ones in hand
				break
			}
		}
		_ = worker.Wait()
		if process >= kills && answered < len(deliveries) {
			t.Fatalf("the last process judged %d of %d", answered, len(deliveries))
		}
		deliveries = deliveries[answered:]
	}
}

func feed(in io.WriteCloser, batch []incidents.Judged) {
	encoder := json.NewEncoder(in)
	for _, j := range batch {
		if encoder.Encode(j) != nil {
			return // it was killed
		}
	}
	_ = in.Close()
}

// sown is a node's time with excursions in it: its values wander around the limit of the
// rule, out of it and back within the rule's times, and each excursion is one.
type sown struct {
	points     []incident.Point
	excursions int
}

const (
	wanderEvery = 5 * time.Minute
	wanderLimit = 30.0
)

func wanderRule() incident.Rule {
	return incident.Rule{
		Quantity: incident.Temperature, Direction: incident.Above, Limit: wanderLimit, For: 10 * time.Minute, ClearMargin: 0.5, ClearFor: 10 * time.Minute,
		Severity: incident.Warning, Enabled: true,
	}
}

func sow(random *rand.Rand, days int) sown {
	var s sown
	count := days * 24 * 12
	for len(s.points) < count {
		calm := 60 + random.IntN(120)
		for range calm { // at the limit, now and then above it for one reading
			s.add(wanderLimit - 0.6 + random.Float64()*0.5 + 0.3*float64(random.IntN(30)/29))
		}
		s.excursions++
		for i := range 6 + random.IntN(40) {
			value := wanderLimit + 0.2 + random.Float64()*3
			if i > 3 && i%4 == 0 { // back by less than the margin, or by more for one reading
				value = wanderLimit - 0.4 - 0.5*float64(random.IntN(2))
			}
			s.add(value)
		}
		for range 4 {
			s.add(wanderLimit - 2)
		}
	}
	return s
}

func (s *sown) add(temperature float64) {
	s.points = append(s.points, incident.Point{
		Time: instant().Add(time.Duration(len(s.points)) * wanderEvery), Temperature: math.Round(temperature*100) / 100, Humidity: 40,
	})
}

// deliveries are the readings as they arrive: one in ten twice, in disorder of up to
// eight places.
func (s *sown) deliveries(random *rand.Rand, node string) []incidents.Judged {
	return s.inPlaces(random, node, func(i int) int { return i + random.IntN(8) })
}

// inPlaces are the readings in the order of their places, one in ten twice.
func (s *sown) inPlaces(random *rand.Rand, node string, place func(i int) int) []incidents.Judged {
	type placed struct {
		incidents.Judged

		place int
	}
	var all []placed
	for i, p := range s.points {
		j := incidents.Judged{
			Reading: reading.Reading{NodeID: node, MessageID: fmt.Sprint("m", i), Time: p.Time, Temperature: p.Temperature, Humidity: p.Humidity},
			Arrived: p.Time.Add(time.Second), Defaults: alert.Defaults(),
		}
		for _, before := range s.points[max(0, i-12):i] {
			j.Window.Age = append(j.Window.Age, p.Time.Sub(before.Time).Seconds())
			j.Window.Temperature, j.Window.Humidity = append(j.Window.Temperature, before.Temperature), append(j.Window.Humidity, before.Humidity)
		}
		for range 1 + random.IntN(10)/9 {
			all = append(all, placed{j, place(i)})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.place - b.place })
	arriving := make([]incidents.Judged, len(all))
	for i, p := range all {
		arriving[i] = p.Judged
	}
	return arriving
}

// TestOneIncidentPerExcursion replays days in which values wander around the limit
// through ten killed processes, and finds one incident for each excursion that was
// sown, as the preview of the rule does. Contract 11.1, 11.5.
func TestOneIncidentPerExcursion(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	days := 4
	if long() {
		days = 31
	}
	address, db := openURL(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	rule := must.Get(db.CreateRule(t.Context(), db.anna, wanderRule()))(t)
	random := rand.New(rand.NewPCG(7, 7))
	month := sow(random, days)
	killed(t, address, month.deliveries(random, "n1"), 10)
	type extent struct {
		Start, End time.Time
		Peak       float64
	}
	var previewed, happened []extent
	for _, i := range rule.Preview(month.points) {
		previewed = append(previewed, extent{i.Start, i.End, i.Peak})
	}
	found := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	slices.Reverse(found)
	for _, i := range found {
		happened = append(happened, extent{i.StartTime.UTC(), i.EndTime.UTC(), i.Peak})
	}
	if diff := cmp.Diff(previewed, happened); diff != "" || len(happened) != month.excursions || month.excursions < days {
		t.Errorf("%d incidents of %d excursions (-preview +happened):\n%s", len(happened), month.excursions, diff)
	}
}
