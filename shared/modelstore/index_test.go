package modelstore_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

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

// TestCustomersShareNothing publishes for one customer a calibration, then a pair: the
// other has neither.
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
