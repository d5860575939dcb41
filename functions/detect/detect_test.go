package detect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// from decodes messages where no gateway is enrolled.
var from = origin.New(nil, time.Now, origin.Options{})

// fakeStatuses is what detection is told of nodes; nodes not in it are nobody's.
type fakeStatuses map[string]pipeline.SensorStatus

var errAway = errors.New("database is away")

func (k fakeStatuses) Status(_ context.Context, node reading.Node) (pipeline.SensorStatus, error) {
	if node.ID == "untold" {
		return pipeline.SensorStatus{}, errAway
	}
	return k[node.ID], nil
}

func (fakeStatuses) Remember(reading.Node) {}

// fakeJudge records the readings that it is to judge.
type fakeJudge struct {
	mu     sync.Mutex
	judged []incidents.Judged
	drills []incidents.DrillMessage
	err    error

	unjudged []incidents.Judged
}

func (j *fakeJudge) Judge(_ context.Context, judged incidents.Judged) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.judged = append(j.judged, judged)
	return j.err
}

func (j *fakeJudge) JudgeDrill(_ context.Context, m incidents.DrillMessage) (bool, error) {
	j.drills = append(j.drills, m)
	return m.Code == "KNOWN", j.err
}

func (j *fakeJudge) SettleAll(context.Context, time.Time) error { return nil }

func (j *fakeJudge) Unjudged(context.Context) ([]incidents.Judged, error) { return j.unjudged, nil }

type fakeObserver struct {
	mu    sync.Mutex
	seen  []wire.Data
	found []incident.Finding
	err   error
}

func (o *fakeObserver) Observe(_ context.Context, d wire.Data, _ pipeline.SensorStatus) ([]incident.Finding, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, d)
	return o.found, o.err
}

// topic is topic alerts on a Pub/Sub server in this process.
func topic(t *testing.T, options ...pstest.ServerReactorOption) (*publisher.Typed[alert.Event], *pstest.Server) {
	t.Helper()
	server := pubsubtest.Start(t, options...)
	pubsubtest.Topics(t, server, "test", "alerts")
	alerts := detect.NewAlertPublisher(pubsubtest.Client(t, server, "test"), "alerts")
	t.Cleanup(alerts.Stop)
	return alerts, server
}

func message(t *testing.T, r reading.Reading, published time.Time) push.Message {
	t.Helper()
	data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(t)
	return push.Message{ID: "1", Data: data, PublishTime: published}
}

func measured(node string, temperature, humidity float64) reading.Reading {
	return reading.Reading{NodeID: node, MessageID: "m1", Time: noon, Temperature: temperature, Humidity: humidity}
}

// TestDetect shows contract 6.2, 6.3, 8.12.
func TestDetect(t *testing.T) {
	t.Parallel()
	statuses := fakeStatuses{
		"owned":   {Owned: true},
		"strict":  {Owned: true, Thresholds: &alert.Thresholds{MaxTemperature: 25, MaxHumidity: 30}},
		"deleted": {Deleted: true},
		"signed":  {Owned: true, Signed: true},
		"before":  {Owned: true, HeldFrom: noon.Add(time.Microsecond)},
	}
	defaultThresholds := alert.Thresholds{MaxTemperature: 40, MaxHumidity: 45}
	for name, c := range map[string]struct {
		reading reading.Reading
		late    time.Duration
		want    []alert.Type
		learned int
	}{
		"normal reading raises no alert":               {reading: measured("owned", 40, 45), learned: 1},
		"hot reading raises a temperature alert":       {reading: measured("owned", 40.01, 45), want: []alert.Type{alert.Temperature}, learned: 1},
		"humid reading raises a humidity alert":        {reading: measured("owned", 40, 45.1), want: []alert.Type{alert.Humidity}, learned: 1},
		"both exceeded raise two alerts":               {reading: measured("owned", 41, 46), want: []alert.Type{alert.Humidity, alert.Temperature}, learned: 1},
		"owner's thresholds come before the defaults":  {reading: measured("strict", 26, 30), want: []alert.Type{alert.Temperature}, learned: 1},
		"unowned sensor is checked and not observed":   {reading: measured("unregistered", 41, 45), want: []alert.Type{alert.Temperature}},
		"probe is passed on":                           {reading: measured("coldaisle.probe", 0, 0), want: []alert.Type{alert.Temperature}},
		"deleted sensor is ignored":                    {reading: measured("deleted", 99, 99)},
		"open reading beside a signed sensor":          {reading: measured("signed", 20, 40)},
		"reading of an earlier holder":                 {reading: measured("before", 20, 40)},
		"hot reading of six hours ago raises an alert": {reading: measured("owned", 41, 45), late: 6 * time.Hour, want: []alert.Type{alert.Temperature}, learned: 1},
		"hot reading of a year ago raises an alert":    {reading: measured("owned", 41, 45), late: 365 * 24 * time.Hour, want: []alert.Type{alert.Temperature}, learned: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			var observer fakeObserver
			d := detect.New(from, statuses, alerts, &fakeJudge{}, &observer, defaultThresholds, logging.Discard(), nil)
			must.Do(t, d.Handle(t.Context(), message(t, c.reading, noon.Add(c.late))))
			var got []alert.Type
			for _, m := range server.Messages() {
				event := must.Get(wire.DecodeAlert(m.Data))(t)
				if event.NodeID != c.reading.NodeID || event.MessageID != "m1" || !event.Time.Equal(noon) || m.Attributes[wire.NodeIDAttribute] != event.NodeID {
					t.Errorf("event %+v of %+v", event, c.reading)
				}
				got = append(got, event.Type)
			}
			slices.Sort(got)
			must.Equal(t, "alerts", c.want, got)
			must.Equal(t, "the learned part saw readings", c.learned, len(observer.seen))
		})
	}
}

// TestDetectJudges shows contract 9.10: a reading is judged, with its window, once it breaks a threshold or a rule, the
// node's rules have memory, or it comes late. Only thresholds raise alerts.
func TestDetectJudges(t *testing.T) {
	t.Parallel()
	dewPoint := incident.Rule{Quantity: incident.DewPoint, Direction: incident.Above, Limit: 15, Enabled: true}
	rate := incident.Rule{Quantity: incident.TemperatureRate, Direction: incident.Above, Limit: 20, Enabled: true}
	window := reading.Window{Age: []float64{600, 300}, Temperature: []float64{20, 23}, Humidity: []float64{40, 40}}
	for name, c := range map[string]struct {
		status      pipeline.SensorStatus
		temperature float64
		humidity    float64
		age         time.Duration
		attempt     int
		judged      bool
		alerts      int
	}{
		"no rule but the thresholds":           {pipeline.SensorStatus{}, 26, 40, 0, 1, false, 0},
		"within a rule":                        {pipeline.SensorStatus{Rules: []incident.Rule{dewPoint}}, 26, 40, 0, 1, false, 0},
		"beyond a rule":                        {pipeline.SensorStatus{Rules: []incident.Rule{dewPoint}}, 26, 60, 0, 1, true, 0},
		"a rate beyond its rule by the window": {pipeline.SensorStatus{Rules: []incident.Rule{rate}}, 26, 40, 0, 1, true, 0},
		"a rate within its rule":               {pipeline.SensorStatus{Rules: []incident.Rule{rate}}, 20, 40, 0, 1, false, 0},
		"memory":                               {pipeline.SensorStatus{Remembers: true}, 20, 40, 0, 1, true, 0},
		"a threshold":                          {pipeline.SensorStatus{}, 51, 40, 0, 1, true, 1},
		"both thresholds":                      {pipeline.SensorStatus{Remembers: true}, 51, 91, 0, 1, true, 2},
		"quiet, a minute old":                  {pipeline.SensorStatus{}, 26, 40, time.Minute, 1, false, 0},
		"quiet and late":                       {pipeline.SensorStatus{}, 26, 40, time.Minute + time.Second, 1, true, 0},
		"quiet and delivered again":            {pipeline.SensorStatus{}, 26, 40, 0, 2, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			c.status.Owned, c.status.Thresholds = true, &alert.Thresholds{MaxTemperature: 50, MaxHumidity: 90}
			judge, defaults := &fakeJudge{}, alert.Thresholds{MaxTemperature: 60, MaxHumidity: 70}
			d := detect.New(from, fakeStatuses{"n1": c.status}, alerts, judge, nil, defaults, logging.Discard(), nil)
			r := measured("n1", c.temperature, c.humidity)
			data := must.Get(wire.EncodeData(wire.Data{Reading: r, Recent: window}))(t)
			published := noon.Add(c.age)
			must.Do(t, d.Handle(t.Context(), push.Message{ID: "1", Data: data, PublishTime: published, DeliveryAttempt: c.attempt}))
			must.Equal(t, "alerts", c.alerts, len(server.Messages()))
			var want []incidents.Judged
			if c.judged {
				want = []incidents.Judged{{Reading: r, Window: window, Arrived: published, Defaults: defaults}}
			}
			must.Equal(t, "judged", want, judge.judged)
		})
	}
}

// TestProbeJudgesWhatWasPassedBy has the probe of each minute judge the readings that a race left, and only that of the
// open channel. One that cannot be judged fails neither the probe nor the others.
func TestProbeJudgesWhatWasPassedBy(t *testing.T) {
	t.Parallel()
	for channel, want := range map[reading.Channel]int{reading.Open: 2, 7: 0} {
		alerts, _ := topic(t)
		judge := &fakeJudge{err: errAway, unjudged: []incidents.Judged{{Reading: measured("a", 20, 40), GatewayID: "gw-1"}, {Reading: measured("b", 21, 40)}}}
		d := detect.New(channelOf{channel}, fakeStatuses{}, alerts, judge, nil, alert.Defaults(), logging.Discard(), nil)
		must.Do(t, d.Handle(t.Context(), message(t, measured(reading.ProbeNodeID, 0, 0), noon)))
		must.Equal(t, fmt.Sprint("judged in channel ", channel), want, len(judge.judged))
		if want > 0 && (judge.judged[0].GatewayID != "gw-1" || !judge.judged[0].Arrived.Equal(noon) || judge.judged[0].Defaults != alert.Defaults()) {
			t.Errorf("%+v", judge.judged[0])
		}
	}
}

// TestLateReadingOfADiscoveredNode is judged, since it may clear an incident of the
// customer's thresholds. In the open channel, a node without a sensor is nobody's.
func TestLateReadingOfADiscoveredNode(t *testing.T) {
	t.Parallel()
	for channel, want := range map[reading.Channel]int{reading.Open: 0, 7: 1} {
		alerts, _ := topic(t)
		judge := &fakeJudge{}
		d := detect.New(channelOf{channel}, fakeStatuses{}, alerts, judge, nil, alert.Defaults(), logging.Discard(), nil)
		must.Do(t, d.Handle(t.Context(), message(t, measured("n1", 20, 40), noon.Add(time.Hour))))
		must.Equal(t, fmt.Sprint("judged in channel ", channel), want, len(judge.judged))
	}
}

// channelOf decodes a message as of a channel.
type channelOf struct{ channel reading.Channel }

func (c channelOf) Data(ctx context.Context, m push.Message) (wire.Data, origin.Source, error) {
	data, source, err := from.Data(ctx, m)
	data.Reading.Channel = c.channel
	return data, source, err
}

// TestFindingsAreJudged shows contract 9.10, 11.8.
func TestFindingsAreJudged(t *testing.T) {
	t.Parallel()
	holds := incident.Finding{
		Kind: incident.KindAnomaly, Holds: true, Score: 3, Reason: "Unchanged for 52 min", Severity: incident.Warning, Quantity: incident.Temperature,
	}
	over := incident.Finding{Kind: incident.KindForecast}
	for name, c := range map[string]struct {
		found     []incident.Finding
		remembers bool
		err       error
		want      []incident.Finding
		judged    int
	}{
		"none holds, and there is no memory":  {found: []incident.Finding{over}},
		"one holds":                           {found: []incident.Finding{over, holds}, want: []incident.Finding{holds}, judged: 1},
		"one may end":                         {found: []incident.Finding{over, holds}, remembers: true, want: []incident.Finding{over, holds}, judged: 1},
		"the observer fails, and rules judge": {remembers: true, err: errAway, judged: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			judge, observer := &fakeJudge{}, &fakeObserver{found: slices.Clone(c.found), err: c.err}
			statuses := fakeStatuses{"n1": {Owned: true, Remembers: c.remembers}}
			d := detect.New(from, statuses, alerts, judge, observer, alert.Defaults(), logging.Discard(), nil)
			err := d.Handle(t.Context(), message(t, measured("n1", 20, 40), noon))
			must.Hold(t, errors.Is(err, c.err) && !push.IsPermanent(err), "%v", err)
			must.Equal(t, "readings judged, and alerts", [2]int{c.judged, 0}, [2]int{len(judge.judged), len(server.Messages())})
			for _, j := range judge.judged {
				must.Equal(t, "findings", c.want, j.Findings)
			}
		})
	}
}

// TestLearningSeesItsHoldAlone shows contract 4.8: of the readings that came with one, learning sees
// those that the sensor's owner may see.
func TestLearningSeesItsHoldAlone(t *testing.T) {
	t.Parallel()
	alerts, _ := topic(t)
	judge, observer := &fakeJudge{}, &fakeObserver{found: []incident.Finding{{Kind: incident.KindAnomaly, Holds: true}}}
	held := noon.Add(-40 * time.Second)
	d := detect.New(from, fakeStatuses{"n1": {Owned: true, HeldFrom: held}}, alerts, judge, observer, alert.Defaults(), logging.Discard(), nil)
	w := reading.Window{Age: []float64{90, 41, 40, 30}, Temperature: []float64{11, 12, 13, 14}, Humidity: []float64{41, 42, 43, 44}}
	data := must.Get(wire.EncodeData(wire.Data{Reading: measured("n1", 20, 40), Recent: w}))(t)
	must.Do(t, d.Handle(t.Context(), push.Message{ID: "1", Data: data, PublishTime: noon}))
	must.Equal(t, "seen", reading.Window{Age: []float64{40, 30}, Temperature: []float64{13, 14}, Humidity: []float64{43, 44}}, observer.seen[0].Recent)
	must.Equal(t, "the hold of the findings", held, judge.judged[0].HeldFrom)
}

// BenchmarkQuietReading measures a reading that breaks none of a dozen rules, of
// which one needs the window, and beside it one of a node without rules.
func BenchmarkQuietReading(b *testing.B) {
	var rules []incident.Rule
	for _, preset := range []incident.Preset{incident.Recommended, incident.AllowableA1, incident.AllowableA2, incident.Rate} {
		rules = append(rules, must.Get(preset.Rules(incident.Scope{}))(b)...)
	}
	var window reading.Window
	for i := range reading.MaxWindow {
		window.Age = append(window.Age, float64((reading.MaxWindow-i)*30))
		window.Temperature, window.Humidity = append(window.Temperature, 22), append(window.Humidity, 45)
	}
	data := must.Get(wire.EncodeData(wire.Data{Reading: measured("n1", 22, 45), Recent: window}))(b)
	m := push.Message{ID: "1", Data: data, PublishTime: noon}
	for name, statuses := range map[string]fakeStatuses{"rules=0": {"n1": {Owned: true}}, "rules=10": {"n1": {Owned: true, Rules: rules}}} {
		b.Run(name, func(b *testing.B) {
			d := detect.New(from, statuses, nil, nil, nil, alert.Defaults(), logging.Discard(), nil) // without a publisher: nothing is to be said
			b.ReportAllocs()
			for b.Loop() {
				must.Do(b, d.Handle(b.Context(), m))
			}
		})
	}
}

// TestFailureIsRetried shows contract 9.10: what the statuses, the judgement or the publication fails
// publishes nothing and is delivered again. A reading within its limits needs the statuses alone.
func TestFailureIsRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node    string
		options []pstest.ServerReactorOption
		judge   error
		judged  int
	}{
		"no thresholds are told": {node: "untold"},
		"topic alerts is away":   {node: "n1", options: []pstest.ServerReactorOption{pstest.WithErrorInjection("Publish", codes.PermissionDenied, "not yours")}, judged: 1},
		"PostgreSQL is away":     {node: "n1", judge: errAway, judged: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t, c.options...)
			judge := &fakeJudge{err: c.judge}
			d := detect.New(from, fakeStatuses{"n1": {Owned: true}}, alerts, judge, nil, alert.Defaults(), logging.Discard(), nil)
			err := d.Handle(t.Context(), message(t, measured(c.node, 99, 20), noon))
			must.Hold(t, err != nil && !push.IsPermanent(err), "got %v", err)
			must.Equal(t, "readings judged, and alerts", [2]int{c.judged, 0}, [2]int{len(judge.judged), len(server.Messages())})
			must.Do(t, d.Handle(t.Context(), message(t, measured("n1", 21, 20), noon))) // within its limits
		})
	}
}

func TestMalformedMessageIsRefused(t *testing.T) {
	t.Parallel()
	d := detect.New(from, fakeStatuses{}, nil, nil, nil, alert.Defaults(), logging.Discard(), nil)
	for _, data := range []string{"", "{", `{"node_id":"n1"}`, `{"node_id":"n1","id":"m","temperature":999,"humidity":1}`} {
		err := d.Handle(t.Context(), push.Message{Data: []byte(data), PublishTime: noon})
		must.Equal(t, data+" is refused for good", true, push.IsPermanent(err))
	}
}

// TestCorrectionIsNoStep lets a correction of one node of a room begin: neither it nor its neighbours are unusual, by
// the live state that the database keeps. The same step in the air is found, of that node alone. Contract 5.16.
func TestCorrectionIsNoStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ corrected, moved float64 }{
		"a correction":      {-8, 0},
		"a step of the air": {0, -8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := findingsAround(t, c.corrected, c.moved)
			must.Hold(t, c.moved != 0 || len(found) == 0, "found %v", found)
			must.Hold(t, c.moved == 0 || len(found["n003"]) != 0, "nothing found of the node that moved: %v", found)
		})
	}
}

// findingsAround returns the anomalies of a room whose node n003 gets a correction, or moves, by
// so many °C and minus twice as many percent.
func findingsAround(t *testing.T, corrected, moved float64) map[string][]incident.Finding {
	t.Helper()
	ctx := t.Context()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	customer, room := s.Owner(t, "customer1")
	nodes := calm(8).rooms[1]
	for _, n := range nodes {
		s.AddSensors(t, customer, room, n.ID)
	}
	must.Get(pool.Exec(ctx, `UPDATE open_holds SET held_from = '-infinity'`))(t)
	from := time.Now().Add(-90 * time.Minute).Truncate(time.Minute).UTC()
	if corrected != 0 {
		must.Get(pool.Exec(ctx, `
			INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at)
			VALUES ($1, 'n003', $2, $3, $4, 'Ana', $2::timestamptz - interval '1 hour')`, customer, from, corrected, -2*corrected))(t)
	}
	site := &site{air: func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if node == "n003" && !at.Before(from) {
			temperature, humidity = reading.Round(temperature+moved), reading.Round(humidity-2*moved)
		}
		return temperature, humidity
	}}
	detector := detect.NewAnomalyDetector(detect.NoModels{}, metadata{s, s}, detect.Questions, site.clock, logging.Discard())
	statuses := must.Get(s.SensorStatuses(ctx, nodes))(t)
	store := func() { // as ingest does
		batch := make([]pipeline.NodeReading, len(nodes))
		for i, n := range nodes {
			r, _ := statuses[n].Corrections.Apply(site.data(n.ID, 0).Reading, reading.Window{})
			batch[i] = pipeline.NodeReading{Reading: r}
		}
		must.Do(t, s.UpdateNodeStates(ctx, batch))
	}
	for site.now = from.Add(-25 * time.Hour); site.now.Before(from.Add(-20 * time.Minute)); site.now = site.now.Add(10 * time.Minute) {
		store()
	}
	found := map[string][]incident.Finding{}
	for ; site.now.Before(from.Add(80 * time.Minute)); site.now = site.now.Add(time.Minute) {
		store()
		for _, n := range nodes {
			findings := must.Get(detector.Observe(ctx, site.data(n.ID, 100), statuses[n]))(t)
			if one, ok := ofKind(findings, incident.KindAnomaly); ok && one.Holds {
				found[n.ID] = append(found[n.ID], one)
			}
		}
	}
	return found
}

// TestCorrectedReadingsAreJudged shows that detect compares corrected values: with thresholds, in
// what it judges, and in the window. Learning observes what was measured. Contract 5.16.
func TestCorrectedReadingsAreJudged(t *testing.T) {
	t.Parallel()
	alerts, server := topic(t)
	judge, observer := &fakeJudge{}, &fakeObserver{}
	status := pipeline.SensorStatus{
		Owned: true, Thresholds: &alert.Thresholds{MaxTemperature: 25, MaxHumidity: 60},
		Corrections: reading.Corrections{{From: noon.Add(-time.Minute), Temperature: 0.5}},
	}
	d := detect.New(from, fakeStatuses{"n1": status}, alerts, judge, observer, alert.Defaults(), logging.Discard(), nil)
	r := measured("n1", 24.8, 40)
	w := reading.Window{Age: []float64{90, 30}, Temperature: []float64{24, 24}, Humidity: []float64{40, 40}}
	data := must.Get(wire.EncodeData(wire.Data{Reading: r, Recent: w}))(t)
	must.Do(t, d.Handle(t.Context(), push.Message{ID: "1", Data: data, PublishTime: noon}))
	if len(server.Messages()) != 1 {
		t.Fatalf("%d alerts, want one", len(server.Messages()))
	}
	must.Equal(t, "alert", 25.3, must.Get(wire.DecodeAlert(server.Messages()[0].Data))(t).Value)
	if j := judge.judged[0]; j.Temperature != 25.3 || j.Window.Temperature[0] != 24 || j.Window.Temperature[1] != 24.5 || j.AsMeasured().Temperature != 24.8 {
		t.Errorf("judged %+v", j)
	}
	o := observer.seen[0]
	must.Hold(t, o.Reading.Temperature == 24.8 && o.Recent.Temperature[1] == 24, "observed %+v", o)
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestProcess runs the function against a metadata database and Pub/Sub.
func TestProcess(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	program := functiontest.Build(t, "../serve")
	database := pgtest.URL(t)
	pool := must.Get(pgxpool.New(t.Context(), database))(t)
	defer pool.Close()
	s := pgtest.NewStores(pool)
	customer, _ := s.Owner(t, "customer1", "strict", "gone")
	must.Do(t, s.DeleteSensor(t.Context(), customer, "gone"))
	limit := 25.0
	must.Get(s.SetThresholds(t.Context(), customer, &limit, nil))(t)
	server := pubsubtest.Start(t)
	pubsubtest.Topics(t, server, "test", "alerts", "data-dead-letter")
	p := functiontest.Start(t, program, "FUNCTION_TARGET=detect", "PROJECT_ID=test", "DEAD_LETTER_TOPIC=data-dead-letter", "DATABASE_URL="+database,
		"PUBSUB_EMULATOR_HOST="+server.Addr, "MAX_ALLOWED_TEMP=30", "ALERT_TOPIC=alerts")
	now := time.Now()
	for _, r := range []reading.Reading{
		{NodeID: "strict", MessageID: "over the owner's limit", Time: now, Temperature: 26, Humidity: 40},
		{NodeID: "strict", MessageID: "at the owner's limit", Time: now, Temperature: 25, Humidity: 40},
		{NodeID: "strict", MessageID: "six hours late", Time: now.Add(-6 * time.Hour), Temperature: 99},
		{NodeID: "gone", MessageID: "deleted", Time: now, Temperature: 99},
		{NodeID: "unregistered", MessageID: "over the default", Time: now, Temperature: 31},
		{NodeID: "unregistered", MessageID: "below the default", Time: now, Temperature: 29},
	} {
		must.Equal(t, p.Output(), http.StatusNoContent, p.Push(message(t, r, now)))
	}
	must.Equal(t, "malformed message answered", http.StatusAccepted, p.Push(push.Message{ID: "malformed", Data: []byte("{")}))
	var raised []string
	for _, m := range server.Messages() {
		if m.Attributes[push.AttributeFunction] == "detect" {
			continue // the malformed one
		}
		raised = append(raised, must.Get(wire.DecodeAlert(m.Data))(t).MessageID)
	}
	must.Equal(t, "raised", "over the owner's limit, six hours late, over the default", strings.Join(raised, ", "))
	found, err := s.Excursions(t.Context(), customer, incidents.ExcursionQuery{PageRequest: store.PageRequest{Limit: 10}}, now)
	must.Hold(t, err == nil && len(found.Items) == 1 && found.Items[0].Lasting && found.Items[0].Peak == 26,
		"excursions %+v, %v: want one, of the threshold", found, err)
	must.Equal(t, p.Output(), 0, p.Terminate())
	must.Contain(t, "the log", p.Output(), `"readings_ignored":1`, `"messages_dead_lettered":1`)
	status, written := functiontest.Exits(t, program, "FUNCTION_TARGET=detect", "PROJECT_ID=p", "DEAD_LETTER_TOPIC=d", "DATABASE_URL=postgres://x", "MAX_ALLOWED_TEMP=hot")
	must.Equal(t, "exit status", 1, status)
	must.Contain(t, "what it says", written, "MAX_ALLOWED_TEMP is not a valid number")
}
