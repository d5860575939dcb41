package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// newborn is how long a node has no hours of its own to be compared with: the first room of make run begins with a
// failure, and coming back from it is unusual to a node that knows nothing else.
const newborn = 2 * time.Hour

// TestDemoDay lets the nodes of make run live for a simulated day, in which the cooling of each
// room fails, in an account as make run makes it. What people are told must be an
// incident for each failure, beside what the rooms' own air does. By day it tries a
// failure with which a room begins; at night, and by make demo-day, all of them.
func TestDemoDay(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	nodes, lasts := 4, 50*time.Minute
	if tooltest.Nightly() {
		nodes, lasts = 8, 24*time.Hour
	}
	address := pgtest.URL(t)
	s := start(t, func(o *system.Options) { o.DatabaseURL = address })
	people := customer(t, s, "demouser")
	config := nodesim.Config{Gateway: "http://gateway.invalid", Nodes: nodes, Seed: 1, Clock: time.Now}
	for i, ids := range must.Get(nodesim.New(config))(t).Rooms() {
		must.Do(t, people.CreateRoom(t.Context(), roomName(i), ids))
	}
	must.Do(t, s.Stop())
	live(t, address, func(t *testing.T, d *day, begin time.Time) {
		t.Helper()
		sown := d.run(t, config, lasts)
		d.compare(t, begin, sown, d.told(t))
	})
}

func roomName(number int) string { return fmt.Sprintf("Server room %d", number+1) }

// day is a day of the functions, in simulated time.
type day struct {
	pool           *pgxpool.Pool
	tb             testing.TB
	ingest, detect push.HandleFunc

	mu sync.Mutex // readings are handled one after the other
}

// live runs a day in a time of its own, over the database that a system has left.
func live(t *testing.T, address string, run func(t *testing.T, d *day, begin time.Time)) {
	t.Helper()
	pooled := must.Get(pgxpool.ParseConfig(address))(t)
	pooled.HealthCheckPeriod = 48 * time.Hour // never: connections belong to the bubble
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), pooled))(t)
	d := newDay(pool)
	// A fixed time, of which the rooms' air is a function: past, as the database refuses what
	// lies ahead, and within a slot of a node's day, as mostly.
	begin := time.Date(2026, 3, 2, 8, 7, 0, 0, time.UTC)
	synctest.Test(t, func(t *testing.T) {
		defer pool.Close()
		d.tb = t
		time.Sleep(time.Until(begin))
		must.Get(pool.Exec(t.Context(), `
			UPDATE open_holds SET held_from = '-infinity';
			UPDATE sensors SET placed_at = '2000-01-01';
			UPDATE alert_thresholds SET temperature_changed_at = NULL;
			DELETE FROM probe`))(t)
		run(t, d, begin)
	})
}

// newDay makes the functions. Their caches have a goroutine that never ends, so that they
// are made outside of the bubble.
func newDay(pool *pgxpool.Pool) *day {
	metadata := store.New(pool)
	from := origin.New(accounts.New(metadata), time.Now, origin.Options{})
	sensors := sensorcache.New(pipeline.New(metadata), coalesce.Wait{}, time.Now)
	predictor := detect.NewAnomalyDetector(detect.NoModels{}, learning.New(metadata), detect.Questions, time.Now, logging.Discard())
	return &day{
		pool:   pool,
		ingest: ingest.New(from, pipeline.New(metadata), pgreadings.New(metadata, nil, time.Now), coalesce.Wait{}, time.Now, logging.Discard(), nil).Handle,
		detect: detect.New(from, sensors, nobody{}, incidents.New(metadata), predictor, alert.Defaults(), logging.Discard(), nil).Handle,
	}
}

// nobody takes alerts.
type nobody struct{}

func (nobody) Publish(context.Context, alert.Event) error { return nil }

func (d *day) run(t *testing.T, config nodesim.Config, lasts time.Duration) (sown []sownFault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	site, wait := d.gateway(ctx, gateway.Config{})
	config.Transport = direct{site}
	simulation := must.Get(nodesim.New(config))(t)
	// The first room is about to pass 50 °C when its nodes are switched on.
	for i, start := range []time.Duration{-13 * time.Minute, 9 * time.Hour, 17 * time.Hour} {
		if room := i % len(simulation.Rooms()); start < lasts {
			f := fault.Fault{Kind: fault.Cooling, Room: fmt.Sprintf("room%d", room+1), Start: time.Now().Add(start), Peak: 36, Constant: 30 * time.Minute}
			f.End = f.Start.Add(20 * time.Minute)
			simulation.Sow(f)
			sown = append(sown, sownFault{roomName(room), f})
		}
	}
	must.Do(t, simulation.Run(ctx))
	wait()
	if stats := simulation.Stats(); stats.Accepted < int64(config.Nodes)*int64(lasts/nodesim.Interval) || stats.Failed+stats.Rejected > 0 {
		t.Errorf("not all readings arrive: %+v", stats)
	}
	return sown
}

// gateway runs one before the functions, and the probe, until ctx ends and wait has returned.
func (d *day) gateway(ctx context.Context, config gateway.Config) (site *gateway.Gateway, wait func()) {
	d.tb.Helper()
	kept := must.Get(outbox.Open(d.tb.TempDir(), outbox.Options{Retain: gateway.OutboxRetention, Clock: time.Now}))(d.tb)
	site = gateway.New(config, gateway.PublishFunc(d.publish), kept, time.Now, logging.Discard())
	var running sync.WaitGroup
	running.Go(func() { _ = site.Run(ctx) })
	running.Go(func() { d.probe(ctx) })
	return site, func() {
		running.Wait()
		must.Do(d.tb, kept.Close())
	}
}

// direct lets nodes reach the gateway without a network, whose waits would stop the time.
type direct struct{ site http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	r.RemoteAddr = "192.168.7.9:50123"
	recorder := httptest.NewRecorder()
	d.site.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// publish is Pub/Sub with its pushes.
func (d *day) publish(ctx context.Context, m gateway.Message) error {
	d.deliver(ctx, m.NodeID, m.Data)
	return nil
}

func (d *day) deliver(ctx context.Context, node string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := push.Message{
		ID: time.Now().String(), Data: data, Attributes: map[string]string{wire.NodeIDAttribute: node}, PublishTime: time.Now(), DeliveryAttempt: 1,
	}
	for _, handle := range []push.HandleFunc{d.ingest, d.detect} {
		err := handle(context.WithoutCancel(ctx), m)
		must.Hold(d.tb, err == nil, "%s: %v", node, err)
	}
}

// probe is Cloud Scheduler.
func (d *day) probe(ctx context.Context) {
	ticker := time.NewTicker(incident.ProbeInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		d.deliver(ctx, reading.ProbeNodeID, []byte(`{"node_id":"`+reading.ProbeNodeID+`","message_id":"scheduler","temperature":0,"humidity":0}`))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

type sownFault struct {
	room string
	fault.Fault
}

// toldIncident is an incident and those of its transitions that wake people, or after which they may be woken again.
type toldIncident struct {
	Room       string
	Cause      incident.Cause
	Severity   incident.Severity
	Actual     bool
	Start, End time.Time
	Excursions int
	Events     []string
	Calls      int
}

func (i toldIncident) of(f sownFault) bool {
	return i.Room == f.room && i.Start.Before(f.Settled()) && i.End.After(f.Start)
}

func (d *day) told(t *testing.T) []toldIncident {
	t.Helper()
	rows := must.Get(d.pool.Query(t.Context(), `
		SELECT i.room_name AS room, i.cause, i.severity, i.actual, i.start_time AS start, i.end_time AS "end", i.parts AS excursions,
		       ARRAY (SELECT c.event FROM incident_changes c WHERE c.incident_id = i.id AND (c.calls OR c.event IN ('taken', 'ended')) ORDER BY c.number) AS events,
		       (SELECT count(*) FROM incident_changes c WHERE c.incident_id = i.id AND c.calls) AS calls
		FROM room_incidents i
		WHERE i.merged_into IS NULL
		ORDER BY i.start_time, i.id`))(t)
	return must.Get(pgx.CollectRows(rows, pgx.RowToStructByName[toldIncident]))(t)
}

// compare prints the faults with what was told of each, and fails where that is not one
// incident of its cause and one call, two where it became critical. What else was told must be true, or merely unusual.
func (d *day) compare(t *testing.T, begin time.Time, sown []sownFault, told []toldIncident) {
	t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) }
	clock := func(at time.Time) string { return at.UTC().Format("2 15:04:05") }
	row("fault", "from", "until", "room", "incident", "phase", "severity", "start", "end", "excursions", "calls")
	count, calls := map[string]int{}, 0
	for _, i := range told {
		calls += i.Calls
		must.Hold(t, !calledAgain(i.Events), "%s in %s at %s calls twice: %v", i.Cause, i.Room, clock(i.Start), i.Events)
		cells, kind := []string{"none", "", ""}, "of no fault"
		at := slices.IndexFunc(sown, func(f sownFault) bool { return i.Cause == incident.TooHot && i.of(f) })
		switch {
		case at >= 0:
			f := sown[at]
			cells, kind = []string{string(f.Kind), clock(f.Start), clock(f.Settled())}, "of a fault"
		case i.Cause == incident.Unusual:
			kind = "unusual"
		case i.Actual:
			kind = "of a limit that healthy air passes"
		case i.Start.Before(begin.Add(newborn)):
			kind = "of a node's first hours"
		default:
			t.Errorf("%s in %s at %s, and nothing is wrong", i.Cause, i.Room, clock(i.Start))
		}
		count[kind]++
		phase := "expected"
		if i.Actual {
			phase = "actual"
		}
		row(append(cells, i.Room, string(i.Cause), phase, string(i.Severity), clock(i.Start), clock(i.End), strconv.Itoa(i.Excursions), strconv.Itoa(i.Calls))...)
	}
	for _, f := range sown {
		of := slices.DeleteFunc(slices.Clone(told), func(i toldIncident) bool { return i.Cause != incident.TooHot || !i.of(f) })
		must.Hold(t, len(of) == 1 && of[0].Actual && of[0].Calls >= 1 && of[0].Calls <= 2,
			"the cooling of %s failed at %s, of which people are told %+v", f.room, clock(f.Start), of)
	}
	must.Hold(t, len(sown) != 0, "nothing failed")
	_ = table.Flush()
	t.Logf("\n%s%d faults, %d incidents, %d calls; incidents: %v", &text, len(sown), len(told), calls, count)
}

// calledAgain reports whether an incident calls twice without having been taken, or over,
// between, but for its becoming critical.
func calledAgain(events []string) bool {
	called, critical := false, false
	for _, e := range events {
		over := e == string(incident.EventTaken) || e == string(incident.EventEnded)
		rises := called && !critical && e == string(incident.EventWorse)
		if called && !over && !rises {
			return true
		}
		called, critical = !over, rises
	}
	return false
}

// TestFanOfABMC lets the fan of one machine fail, in a room that only BMCs measure, through
// Telegraf's door of the gateway: people are told once, of that machine.
func TestFanOfABMC(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	address := pgtest.URL(t)
	s := start(t, func(o *system.Options) { o.DatabaseURL = address })
	owner := customer(t, s, "operator")
	made := site.New(site.Options{Seed: 3, Rooms: 1, PerRoom: 4})
	var bmcs []string
	for _, place := range made.Places() {
		bmcs = append(bmcs, place.Node)
	}
	must.Do(t, owner.CreateRoom(t.Context(), "Vault", bmcs))
	owner.do(http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", owner.ID), `{"max_temperature":32}`, http.StatusOK)
	must.Do(t, s.Stop())
	live(t, address, func(t *testing.T, d *day, begin time.Time) {
		t.Helper()
		failing := fault.Fault{
			Kind: fault.Cooling, Room: "room1", Node: bmcs[2], Start: begin.Add(time.Hour), End: begin.Add(2 * time.Hour), Peak: 16, Constant: 5 * time.Minute,
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Minute)
		defer cancel()
		gate, wait := d.gateway(ctx, gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "telegraf", Networks: []string{"192.168.7.9"}}}}})
		for ; ctx.Err() == nil; time.Sleep(30 * time.Second) {
			type metric struct {
				Name      string             `json:"name"`
				Tags      map[string]string  `json:"tags"`
				Fields    map[string]float64 `json:"fields"`
				Timestamp int64              `json:"timestamp"`
			}
			var batch struct {
				Metrics []metric `json:"metrics"`
			}
			for i, bmc := range bmcs {
				celsius := made.Measure(i, time.Now(), fault.Of([]fault.Fault{failing}, "room1", bmc)).Temperature
				batch.Metrics = append(batch.Metrics, metric{
					"redfish_thermal_temperatures", map[string]string{"node_id": bmc, "name": "Inlet Temp"}, map[string]float64{"reading_celsius": celsius}, time.Now().UnixMilli(),
				})
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/telegraf", bytes.NewReader(must.Get(json.Marshal(batch))(t)))
			request.RemoteAddr = "192.168.7.9:50123"
			answer := httptest.NewRecorder()
			gate.ServeHTTP(answer, request)
			must.Equal(t, answer.Body.String(), http.StatusAccepted, answer.Code)
		}
		wait()
		all := must.Get(incidents.New(store.New(d.pool)).Incidents(t.Context(), owner.ID, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 9}}, time.Now()))(t).Items
		told := d.told(t)
		if len(all) != 1 || len(told) != 1 || told[0].Cause != incident.TooHot || told[0].Calls != 2 || !told[0].Actual ||
			!strings.HasPrefix(all[0].Worst.Reason, "Temperature above 32.0 °C") || all[0].Worst.NodeID != bmcs[2] || !told[0].of(sownFault{"Vault", failing}) {
			t.Errorf("told %+v, %+v", told, all)
		}
	})
}

// TestPast starts a demo with a past of hours: the lost cooling of each of two rooms is one incident
// that is over, by its own time; verdicts have trained a model; another start sends nothing of it again.
func TestPast(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	const lasts = 7 * time.Hour
	folder, database := t.TempDir(), pgtest.URL(t)
	begin := func() (*system.System, *user) {
		t.Helper()
		s := start(t, func(o *system.Options) {
			o.DataDir, o.DatabaseURL, o.Nodes, o.Seed, o.History = folder, database, 16, 24, lasts
		})
		owner := &user{system.APIUser{Base: s.APIURL}, t}
		must.Do(t, owner.SignIn(t.Context(), must.Get(s.Demo(t.Context()))(t), ""))
		return s, owner
	}
	s, _ := begin()
	must.Do(t, s.Stop()) // in the midst of it; the next start goes on
	began := time.Now()
	s, owner := begin()
	shares := []int{-1}
	for { // as the page asks
		answer := must.Get(http.Get(s.APIURL))(t) //nolint:bodyclose,noctx // below
		must.Do(t, answer.Body.Close())
		told, share := answer.Header.Get("Coldaisle-Past"), 0
		if told == "" {
			break
		}
		_, err := fmt.Sscanf(told, "Simulated readings of the last 0.292 days are arriving: %d %%.", &share)
		must.Hold(t, err == nil && share <= 100 && share >= slices.Max(shares), "%q after %d: %v", told, shares, err)
		shares = append(shares, share)
		time.Sleep(20 * time.Millisecond)
	}
	if slices.Sort(shares); len(slices.Compact(shares)) < 4 {
		t.Errorf("the past grows by %d", shares)
	}
	must.Eventually(t, "models are trained from the past", func() bool {
		runs := list(t, owner.do("GET", "/api/v1/ml/retraining/history", "", 200))
		return len(runs) == 1 && field[string](t, runs[0], "status") != "running"
	})
	hot := map[string]bool{}
	for _, i := range list(t, owner.do("GET", "/api/v1/incidents", "", 200)) {
		at := must.Get(time.Parse(time.RFC3339, field[string](t, i, "start_time")))(t)
		cause := field[string](t, i, "cause")
		must.Hold(t, cause == "too_hot" && !hot[field[string](t, i, "room_name")], "%s: %v", cause, i)
		must.Hold(t, field[string](t, i, "state") == "over" && !at.After(began.Add(-30*time.Minute)),
			"it is of the past: %v", i)
		hot[field[string](t, i, "room_name")] = true
	}
	must.Equal(t, "rooms that were too hot", map[string]bool{"Server room 1": true, "Server room 2": true}, hot)
	must.Equal(t, "windows of maintenance", 1, len(list(t, owner.do("GET", "/api/v1/maintenance", "", 200))))
	host := owner.do("GET", "/api/v1/sensors/sensor/sim-r2-n8", "", 200)
	must.Equal(t, "a host's name", "Host 1", field[string](t, host, "name"))
	temperatures := list(t, owner.do("GET", "/api/v1/data/historical/sim-r2-n8?start_time=2020-01-01&end_time=2090-01-01", "", 200))
	for _, r := range temperatures {
		if members, _ := r.(map[string]any); len(members) == 0 || members["humidity"] != nil || members["temperature"] == nil {
			t.Fatalf("a host measures temperature alone: %v", r)
		}
	}
	must.Hold(t, len(temperatures) >= 100, "a host sent %d readings", len(temperatures))
	past := func(s *system.System) (stored int) {
		t.Helper()
		must.Do(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM sensor_data.readings WHERE timestamp < $1 AND node_id LIKE 'sim-%'`, began).Scan(&stored))
		return stored
	}
	// Every five minutes, and every half minute of the last hour.
	stored := past(s)
	least, most := 16*(6*12+120-2), 16*(6*12+120+2)
	must.Hold(t, stored >= least && stored <= most, "%d readings of the past, want %d to %d", stored, least, most)
	must.Do(t, s.Stop())
	s, _ = begin()
	must.Eventually(t, "nodes and host measure now", func() bool { return s.Nodes.Stats().Accepted >= 16 })
	must.Equal(t, "readings that were refused", int64(0), s.Nodes.Stats().Rejected)
	must.Equal(t, "readings of the past after another start", stored, past(s))
}
