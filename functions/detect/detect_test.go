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
	mu   sync.Mutex
	seen []wire.Data
	err  error
}

func (o *fakeObserver) Observe(_ context.Context, d wire.Data) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, d)
	return o.err
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
	data, err := wire.EncodeData(wire.Data{Reading: r})
	if err != nil {
		t.Fatal(err)
	}
	return push.Message{ID: "1", Data: data, PublishTime: published}
}

func measured(node string, temperature, humidity float64) reading.Reading {
	return reading.Reading{NodeID: node, MessageID: "m1", Time: noon, Temperature: temperature, Humidity: humidity}
}

// TestDetect shows contract 6.2, 6.3, 6.5.
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
