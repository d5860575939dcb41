package modelstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// trained are models of a run at a time.
func trained(t *testing.T, run int64, at time.Time) (*learn.Detector, *learn.Forecaster) {
	t.Helper()
	s := learn.NodeHistory{NodeID: "n"}
	for i := range learn.MinRows + 200 {
		s.Readings = append(s.Readings, reading.Reading{
			NodeID: "n", MessageID: "m", Time: noon().Add(time.Duration(30*i) * time.Second),
			Temperature: 20 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		})
	}
	result := must.Get(learn.Train(t.Context(), learn.Input{History: []learn.NodeHistory{s}, Seed: 1, Run: run, Started: at}))(t)
	return result.Detector, result.Forecaster
}

type store struct {
	*modelstore.Bucket

	server *fakestorage.Server
}

func newStore(t *testing.T) store {
	t.Helper()
	server := must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Port: 0}))(t)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "models"})
	bucket := must.Get(modelstore.Open(t.Context(), "models", option.WithEndpoint(server.URL()+"/storage/v1/"), option.WithoutAuthentication()))(t)
	t.Cleanup(func() { _ = bucket.Close() })
	return store{bucket, server}
}

func (s store) publish(t *testing.T, at time.Time) modelstore.Manifest {
	t.Helper()
	live := must.Get(s.Manifest(t.Context(), 17))(t)
	d, f := trained(t, 0, at)
	return must.Get(s.Publish(t.Context(), 17, live, d, f, at))(t)
}

func TestPublishAndUseOlder(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must.Equal(t, "manifest of an empty bucket", modelstore.Manifest{}, must.Get(s.Manifest(t.Context(), 17))(t))
	first := s.publish(t, noon())
	must.Equal(t, "published", "anomaly_v20260301T120000Z,forecasting_v20260301T120000Z", first.Version())
	// A run whose detector did not pass publishes a forecaster alone.
	_, f := trained(t, 0, noon().Add(time.Hour))
	second := must.Get(s.Publish(t.Context(), 17, first, nil, f, noon().Add(time.Hour)))(t)
	must.Equal(t, "published", "anomaly_v20260301T120000Z,forecasting_v20260301T130000Z", second.Version())
	want := []string{"anomaly_v20260301T120000Z", "forecasting_v20260301T120000Z", "forecasting_v20260301T130000Z"}
	must.Equal(t, "listed", want, must.Get(s.List(t.Context(), 17))(t))
	back := must.Get(s.Use(t.Context(), 17, "", "forecasting_v20260301T120000Z", noon().Add(2*time.Hour)))(t)
	must.Equal(t, "back at", first.Version(), back.Version())
	none := must.Err(s.Use(t.Context(), 17, "anomaly_v20200101T000000Z", "", noon()))
	must.Fail(t, "using what there is not", none, modelstore.ErrNoArtifact)
	pair, _, err := s.Load(t.Context(), 17, back)
	if err != nil || pair.Detector == nil || pair.Forecaster == nil || pair.Forecaster.Info.Name != "forecasting_v20260301T120000Z" {
		t.Errorf("loaded %+v, %v", pair.Manifest, err)
	}
}

// TestGenerationsOfOneSecond publishes models of several runs that began in the same second, after one of when names
// did not have the run: all are kept, listed from old to new, and can be put in use.
func TestGenerationsOfOneSecond(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const old = "anomaly_v20260301T120000Z"
	var live modelstore.Manifest
	for _, run := range []int64{0, 9, 10, 100} {
		d, _ := trained(t, run, noon())
		live = must.Get(s.Publish(t.Context(), 17, live, d, nil, noon()))(t)
	}
	want := []string{old, old + "_000009", old + "_000010", old + "_000100"}
	must.Equal(t, "listed", want, must.Get(s.List(t.Context(), 17))(t))
	back := must.Get(s.Use(t.Context(), 17, old, "", noon()))(t)
	if pair, _, err := s.Load(t.Context(), 17, back); err != nil || pair.Detector == nil || pair.Detector.Info.Name != old {
		t.Errorf("loaded %+v, %v", pair.Manifest, err)
	}
}

// TestNothingNewWritesNothing holds that nobody loads again what they have.
func TestNothingNewWritesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	live := s.publish(t, noon())
	must.Equal(t, "published", live, must.Get(s.Publish(t.Context(), 17, live, nil, nil, noon().Add(time.Hour)))(t))
	must.Equal(t, "manifest", live, must.Get(s.Manifest(t.Context(), 17))(t))
}

// TestTwoTrainers lets several publish over the same manifest: one does.
func TestTwoTrainers(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	live := s.publish(t, noon())
	const trainers = 4
	faults := make([]error, trainers)
	var group sync.WaitGroup
	for i := range trainers {
		d, f := trained(t, 0, noon().Add(time.Duration(i+1)*time.Minute))
		group.Go(func() { _, faults[i] = s.Publish(context.Background(), 17, live, d, f, noon()) })
	}
	group.Wait()
	taken := 0
	for _, err := range faults {
		if errors.Is(err, modelstore.ErrConflict) {
			taken++
		} else if err != nil {
			t.Error(err)
		}
	}
	must.Equal(t, "trainers told that another was first", trainers-1, taken)
}

// TestLoaderFollows publishes behind a loader's back, and damages what it would load.
func TestLoaderFollows(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	s := newStore(t)
	now := noon()
	var log bytes.Buffer
	l := modelstore.NewLoader(s.Bucket, 0, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
	version := func() string { return l.Wait(t.Context(), 17).Manifest.Version() }
	must.Equal(t, "of an empty bucket it loaded", "", version())
	first := s.publish(t, noon())
	now = now.Add(modelstore.RefreshInterval - time.Second)
	must.Equal(t, "it looked again before its time and loaded", "", version())
	now = now.Add(time.Second)
	must.Equal(t, "loaded", first.Version(), version())

	second := s.publish(t, noon().Add(time.Hour))
	for name, spoil := range map[string]func([]byte) []byte{
		"cut":            func(b []byte) []byte { return b[:len(b)/2] },
		"flipped":        func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a version more": func(b []byte) []byte { b[len("coldaisle model\n")]++; return b },
	} {
		object := "models/17/" + second.Detector + ".bin"
		whole := must.Get(s.server.GetObject("models", object))(t)
		content := slices.Clone(whole.Content)
		s.server.CreateObject(fakestorage.Object{ObjectAttrs: whole.ObjectAttrs, Content: spoil(slices.Clone(content))})
		now = now.Add(modelstore.RefreshInterval)
		must.Equal(t, name+": loaded", first.Version(), version())
		s.server.CreateObject(fakestorage.Object{ObjectAttrs: whole.ObjectAttrs, Content: content})
	}
	must.Contain(t, "the log of damaged models", log.String(), "checksum does not fit", "this program knows")
	now = now.Add(modelstore.RefreshInterval)
	must.Equal(t, "loaded", second.Version(), version())
	s.server.Stop() // storage away: what is loaded stays
	now = now.Add(modelstore.RefreshInterval)
	must.Equal(t, "with the storage away it has", second.Version(), version())
}

// panicking is a transport on which whoever reads a model panics, as a decoder with a fault would.
type panicking struct{}

func (panicking) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, ".bin") {
		panic("nil map")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestPanicWhileLoading has one customer's models panic, which ends no process that serves all.
func TestPanicWhileLoading(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must.Do(t, s.PublishCalibration(t.Context(), 17, "calibration_v20260301", calibration(1)))
	client := &http.Client{Transport: panicking{}}
	bucket := must.Get(modelstore.Open(t.Context(), "models", option.WithEndpoint(s.server.URL()+"/storage/v1/"), option.WithHTTPClient(client)))(t)
	t.Cleanup(func() { _ = bucket.Close() })
	var log bytes.Buffer
	l := modelstore.NewLoader(bucket, 0, noon, slog.New(slog.NewTextHandler(&log, nil)))
	must.Hold(t, l.Wait(t.Context(), 17).Calibration == nil, "it loaded what panics")
	must.Contain(t, "the log", log.String(), "panic: nil map", "customer_id=17")
}

func (s store) loader(t *testing.T, clock func() time.Time) *modelstore.Loader {
	t.Helper()
	l := modelstore.NewLoader(s.Bucket, 0, clock, logging.Discard())
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func calibration(nodes int) *anomaly.Calibration {
	past := make([]anomaly.NodeHours, nodes)
	for i := range past {
		past[i] = anomaly.NodeHours{Node: fmt.Sprint("node-", i), Room: "1", Neighbours: []string{"node-0", "absent"}}
	}
	return anomaly.Calibrate(past)
}

// TestCustomersShareNothing publishes for one customer a calibration, then a pair: the other has neither.
func TestCustomersShareNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	now := noon()
	l := s.loader(t, func() time.Time { return now })
	must.Equal(t, "pair at first", modelstore.Pair{}, l.Wait(t.Context(), 17))
	must.Do(t, s.PublishCalibration(t.Context(), 17, "calibration_v20260301", calibration(3)))
	now = now.Add(modelstore.RefreshInterval)
	if pair := l.Wait(t.Context(), 17); pair.Detector != nil || pair.Calibration == nil || fmt.Sprint(pair.Calibration.Neighbours("node-1")) != "[node-0]" {
		t.Errorf("with a calibration %+v", pair)
	}
	own := s.publish(t, noon().Add(time.Hour))
	now = now.Add(modelstore.RefreshInterval)
	if pair := l.Wait(t.Context(), 17); pair.Manifest != own || own.Calibration != "calibration_v20260301" || pair.Detector.Info.Name != own.Detector {
		t.Errorf("with a pair of their own %+v, want %+v", pair.Manifest, own)
	}
	must.Equal(t, "pair of another customer", modelstore.Pair{}, l.Wait(t.Context(), 18))
}

// TestPublishingTogether lets many customers publish at once: none is lost.
func TestPublishingTogether(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var group sync.WaitGroup
	faults := make([]error, 6)
	for i := range faults {
		group.Go(func() {
			faults[i] = s.PublishCalibration(t.Context(), int64(i+1), "calibration_v20260301", calibration(i+1))
		})
	}
	group.Wait()
	index, err := s.Index(t.Context())
	err = errors.Join(append(faults, err)...)
	must.Hold(t, err == nil && len(index.Customers) == len(faults), "%v, %v", index, err)
}

// TestMissingPairNeverWaits asks for customers whose models are not loaded, and with more
// of them than memory has room for.
func TestMissingPairNeverWaits(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	s := newStore(t)
	long := make([]anomaly.NodeHours, 32)
	for i := range long {
		long[i].Node = strings.Repeat("x", 1<<20) + strconv.Itoa(i) // the cheapest way to 32 MB each
	}
	large := anomaly.Calibrate(long)
	for customer := range int64(6) {
		must.Do(t, s.PublishCalibration(t.Context(), customer+1, "calibration_v20260301", large))
	}
	l := s.loader(t, noon)
	pair := l.Pair(t.Context(), 1)
	must.Hold(t, pair.Calibration == nil, "before anything can have been loaded: %+v", pair.Manifest)
	for customer := range int64(6) {
		pair := l.Wait(t.Context(), customer+1)
		must.Hold(t, pair.Calibration != nil, "customer %d has no calibration", customer+1)
	}
	must.Hold(t, l.Pair(t.Context(), 1).Calibration == nil && l.Pair(t.Context(), 6).Calibration != nil,
		"the customer who was asked for first is kept, or the last one is not")
}
