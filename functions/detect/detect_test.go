package detect_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// from decodes messages where no gateway is enrolled.
var from = origin.New(noGateways{}, time.Now, origin.Options{})

type noGateways struct{}

func (noGateways) GatewayKeys(context.Context, []string) (map[string]store.GatewayKey, error) {
	return nil, nil
}

// fakeStatuses is what detection is told of nodes; nodes not in it are nobody's.
type fakeStatuses map[string]store.SensorStatus

var errAway = errors.New("database is away")

func (k fakeStatuses) Status(_ context.Context, node reading.Node) (store.SensorStatus, error) {
	if node.ID == "untold" {
		return store.SensorStatus{}, errAway
	}
	return k[node.ID], nil
}

type fakeObserver struct {
	mu    sync.Mutex
	seen  []wire.Data
	found []incident.Finding
	err   error
}

func (o *fakeObserver) Observe(_ context.Context, d wire.Data, _ store.SensorStatus) ([]incident.Finding, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, d)
	return o.found, o.err
}

// topic is topic alerts on a Pub/Sub server in this process.
func topic(t *testing.T, options ...pstest.ServerReactorOption) (*publisher.Typed[wire.Alert], *pstest.Server) {
	t.Helper()
	server := pubsubtest.Start(t, options...)
	pubsubtest.Topics(t, server, "test", "alerts")
	alerts := detect.NewAlertPublisher(pubsubtest.Client(t, server, "test"), "alerts")
	t.Cleanup(alerts.Stop)
	return alerts, server
}

func message(t *testing.T, r reading.Reading, published time.Time) push.Message {
	t.Helper()
	data, err := wire.EncodeData(wire.Data{Reading: r})
	if err != nil {
		t.Fatal(err)
	}
	return push.Message{ID: "1", Data: data, PublishTime: published}
}

func measured(node string, temperature, humidity float64) reading.Reading {
	return reading.Reading{NodeID: node, MessageID: "m1", Time: noon, Temperature: temperature, Humidity: humidity}
}

// TestDetect shows contract 6.2, 6.3, 6.5, 8.12.
func TestDetect(t *testing.T) {
	t.Parallel()
	statuses := fakeStatuses{
		"owned":   {Owned: true},
		"strict":  {Owned: true, Thresholds: &alert.Thresholds{MaxTemperature: 25, MaxHumidity: 30}},
		"deleted": {Deleted: true},
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
		"hot reading of six hours ago raises an alert": {reading: measured("owned", 41, 45), late: 6 * time.Hour, want: []alert.Type{alert.Temperature}, learned: 1},
		"hot reading of a year ago raises an alert":    {reading: measured("owned", 41, 45), late: 365 * 24 * time.Hour, want: []alert.Type{alert.Temperature}, learned: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			var observer fakeObserver
			d := detect.New(from, statuses, alerts, &observer, defaultThresholds, logging.Discard(), nil)
			err := d.Handle(t.Context(), message(t, c.reading, noon.Add(c.late)))
			if err != nil {
				t.Fatal(err)
			}
			var got []alert.Type
			for _, m := range server.Messages() {
				event, err := wire.DecodeAlert(m.Data)
				if err != nil {
					t.Fatal(err)
				}
				if event.NodeID != c.reading.NodeID || event.MessageID != "m1" || !event.Time.Equal(noon) || m.Attributes[wire.NodeIDAttribute] != event.NodeID {
					t.Errorf("event %+v of %+v", event, c.reading)
				}
				got = append(got, event.Type)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("alerts (-want +got):\n%s", diff)
			}
			if len(observer.seen) != c.learned {
				t.Errorf("the learned part saw %d readings, want %d", len(observer.seen), c.learned)
			}
		})
	}
}

// TestDetectPublishesWhatRulesNeed shows contract 9.10: one message, without an alert
// unless a threshold is exceeded, of a reading that breaks a rule or whose node's rules
// remember something, and the window with it.
func TestDetectPublishesWhatRulesNeed(t *testing.T) {
	t.Parallel()
	dewPoint := incident.Rule{Quantity: incident.DewPoint, Direction: incident.Above, Limit: 15, Enabled: true}
	rate := incident.Rule{Quantity: incident.TemperatureRate, Direction: incident.Above, Limit: 20, Enabled: true}
	window := reading.Window{Age: []float64{600, 300}, Temperature: []float64{20, 23}, Humidity: []float64{40, 40}}
	for name, c := range map[string]struct {
		status      store.SensorStatus
		temperature float64
		humidity    float64
		messages    int
		alert       alert.Type
		window      bool
	}{
		"no rule but the thresholds":          {store.SensorStatus{}, 26, 40, 0, "", false},
		"rules that it keeps":                 {store.SensorStatus{Rules: []incident.Rule{dewPoint}}, 26, 40, 0, "", false},
		"a rule that it breaks":               {store.SensorStatus{Rules: []incident.Rule{dewPoint}}, 26, 60, 1, "", true},
		"a rate that it breaks by the window": {store.SensorStatus{Rules: []incident.Rule{rate}}, 26, 40, 1, "", true},
		"a rate that it keeps":                {store.SensorStatus{Rules: []incident.Rule{rate}}, 20, 40, 0, "", false},
		"memory":                              {store.SensorStatus{Remembers: true}, 20, 40, 1, "", true},
		"a threshold alone":                   {store.SensorStatus{}, 51, 40, 1, alert.Temperature, false},
		"a threshold and memory":              {store.SensorStatus{Remembers: true}, 51, 40, 1, alert.Temperature, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			c.status.Owned, c.status.Thresholds = true, &alert.Thresholds{MaxTemperature: 50, MaxHumidity: 90}
			d := detect.New(from, fakeStatuses{"n1": c.status}, alerts, nil, alert.Defaults(), logging.Discard(), nil)
			data, err := wire.EncodeData(wire.Data{Reading: measured("n1", c.temperature, c.humidity), Recent: window})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Handle(t.Context(), push.Message{ID: "1", Data: data, PublishTime: noon}); err != nil {
				t.Fatal(err)
			}
			sent := server.Messages()
			if len(sent) != c.messages {
				t.Fatalf("%d messages", len(sent))
			}
			for _, m := range sent {
				a, err := wire.DecodeAlert(m.Data)
				if err != nil || a.Type != c.alert || a.Temperature != c.temperature || (a.Recent.Len() == 2) != c.window {
					t.Errorf("%+v, %v", a, err)
				}
			}
		})
	}
}

// TestDetectPublishesFindings shows contract 9.10, 11.8.
func TestDetectPublishesFindings(t *testing.T) {
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
		messages  int
	}{
		"nothing found":                   {found: []incident.Finding{over}},
		"one holds":                       {found: []incident.Finding{over, holds}, want: []incident.Finding{holds}, messages: 1},
		"one may end":                     {found: []incident.Finding{over, holds}, remembers: true, want: []incident.Finding{over, holds}, messages: 1},
		"learning fails, and rules judge": {remembers: true, err: errAway, messages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			versions := map[int64]int64{4: 2}
			statuses := fakeStatuses{"n1": {Owned: true, Remembers: c.remembers, Versions: versions}}
			observer := &fakeObserver{found: slices.Clone(c.found), err: c.err}
			d := detect.New(from, statuses, alerts, observer, alert.Defaults(), logging.Discard(), nil)
			if err := d.Handle(t.Context(), message(t, measured("n1", 20, 40), noon)); !errors.Is(err, c.err) {
				t.Error(err)
			}
			sent := server.Messages()
			if len(sent) != c.messages {
				t.Fatalf("%d messages", len(sent))
			}
			for _, m := range sent {
				a, err := wire.DecodeAlert(m.Data)
				if diff := cmp.Diff(c.want, a.Findings); diff != "" || err != nil || !cmp.Equal(versions, a.Versions) {
					t.Errorf("%+v, %v (-want +got):\n%s", a, err, diff)
				}
			}
		})
	}
}

// BenchmarkQuietReading measures a reading that breaks none of a dozen rules, of
// which one needs the window, and beside it one of a node without rules.
func BenchmarkQuietReading(b *testing.B) {
	var rules []incident.Rule
	for _, preset := range []incident.Preset{incident.Recommended, incident.AllowableA1, incident.AllowableA2, incident.Rate} {
		of, err := preset.Rules(incident.Scope{})
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, of...)
	}
	var window reading.Window
	for i := range reading.MaxWindow {
		window.Age = append(window.Age, float64((reading.MaxWindow-i)*30))
		window.Temperature, window.Humidity = append(window.Temperature, 22), append(window.Humidity, 45)
	}
	data, err := wire.EncodeData(wire.Data{Reading: measured("n1", 22, 45), Recent: window})
	if err != nil {
		b.Fatal(err)
	}
	m := push.Message{ID: "1", Data: data, PublishTime: noon}
	for name, statuses := range map[string]fakeStatuses{"rules=0": {"n1": {Owned: true}}, "rules=10": {"n1": {Owned: true, Rules: rules}}} {
		b.Run(name, func(b *testing.B) {
			d := detect.New(from, statuses, nil, nil, alert.Defaults(), logging.Discard(), nil) // without a publisher: nothing is to be said
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Handle(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestDetectDatesReadingsAsIngestDoes checks a hot reading stamped so long after
// its message was published: the alert, and what is learnt from, have the date
// under which ingest stores the reading. Contract 9.2.
func TestDetectDatesReadingsAsIngestDoes(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Minute
	for name, c := range map[string]struct{ ahead, want time.Duration }{
		"below the limit":  {limit - time.Microsecond, limit - time.Microsecond},
		"at the limit":     {limit, limit},
		"above the limit":  {limit + time.Microsecond, 0},
		"a century above":  {100 * 365 * 24 * time.Hour, 0},
		"of six hours ago": {-6 * time.Hour, -6 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alerts, server := topic(t)
			var observer fakeObserver
			d := detect.New(from, fakeStatuses{"n1": {Owned: true}}, alerts, &observer, alert.Defaults(), logging.Discard(), nil)
			hot := measured("n1", 99, 20)
			hot.Time = noon.Add(c.ahead)
			if err := d.Handle(t.Context(), message(t, hot, noon)); err != nil {
				t.Fatal(err)
			}
			want := noon.Add(c.want)
			sent := server.Messages()
			if len(sent) != 1 || len(observer.seen) != 1 {
				t.Fatalf("%d alerts, learnt from %d readings", len(sent), len(observer.seen))
			}
			if event, err := wire.DecodeAlert(sent[0].Data); err != nil || !event.Time.Equal(want) {
				t.Errorf("alert of %s, %v, want %s", event.Time, err, want)
			}
			if got := observer.seen[0].Reading.Time; !got.Equal(want) {
				t.Errorf("learnt from a reading of %s, want %s", got, want)
			}
		})
	}
}

// TestDetectIsRetriedWhenThresholdsAreUnavailable shows contract 9.8.
func TestDetectIsRetriedWhenThresholdsAreUnavailable(t *testing.T) {
	t.Parallel()
	alerts, server := topic(t)
	d := detect.New(from, fakeStatuses{}, alerts, nil, alert.Defaults(), logging.Discard(), nil)
	err := d.Handle(t.Context(), message(t, measured("untold", 99, 99), noon))
	if !errors.Is(err, errAway) || push.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
	if len(server.Messages()) != 0 {
		t.Error("an event was published without thresholds")
	}
}

func TestDetectIsRetriedWhenAnAlertIsNotPublished(t *testing.T) {
	t.Parallel()
	alerts, _ := topic(t, pstest.WithErrorInjection("Publish", codes.PermissionDenied, "not yours"))
	var observer fakeObserver
	d := detect.New(from, fakeStatuses{"n1": {Owned: true}}, alerts, &observer, alert.Defaults(), logging.Discard(), nil)
	if err := d.Handle(t.Context(), message(t, measured("n1", 99, 20), noon)); err == nil || push.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

func TestDetectIsRetriedWhenThePredictionIsNotRecorded(t *testing.T) {
	t.Parallel()
	alerts, _ := topic(t)
	observer := fakeObserver{err: errAway}
	d := detect.New(from, fakeStatuses{"n1": {Owned: true}}, alerts, &observer, alert.Defaults(), logging.Discard(), nil)
	if err := d.Handle(t.Context(), message(t, measured("n1", 20, 20), noon)); !errors.Is(err, errAway) || push.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

func TestMalformedMessageIsRefused(t *testing.T) {
	t.Parallel()
	d := detect.New(from, fakeStatuses{}, nil, nil, alert.Defaults(), logging.Discard(), nil)
	for _, data := range []string{"", "{", `{"node_id":"n1"}`, `{"node_id":"n1","id":"m","temperature":999,"humidity":1}`} {
		if err := d.Handle(t.Context(), push.Message{Data: []byte(data), PublishTime: noon}); !push.IsPermanent(err) {
			t.Errorf("%q: %v", data, err)
		}
	}
}
