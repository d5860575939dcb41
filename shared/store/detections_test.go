package store_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

func detection(minutes float64, anomaly bool) learning.NewPrediction {
	return learning.NewPrediction{
		SensorID: "n1", Time: instant().Add(time.Duration(minutes * float64(time.Minute))), MessageID: strconv.FormatFloat(minutes, 'f', -1, 64),
		AnomalyPredicted: anomaly, SamplingProbability: 1,
	}
}

func (db fixture) detect(t *testing.T, n learning.NewPrediction, want bool) {
	t.Helper()
	must.Equal(t, fmt.Sprintf("detection at %s (anomaly %v) recorded", n.Time, n.AnomalyPredicted), want, must.Get(db.RecordDetection(t.Context(), n))(t))
}

func TestDetectionsAreRecordedOnceAndSeldom(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.detect(t, detection(0, true), true)
	db.detect(t, detection(0, true), false) // delivered again
	db.detect(t, detection(9.9, true), false)
	db.detect(t, detection(-9.9, true), false) // out of order
	db.detect(t, detection(5, false), true)    // what is normal has no such limit
	db.detect(t, detection(5, false), false)
	db.detect(t, detection(10, true), true)
	other := detection(1, true)
	other.SensorID = "n2"
	db.detect(t, other, true)

	// Judged, it is open no more, and the next one is a question again.
	listed, err := db.Predictions(t.Context(), db.anna, learning.PredictionFilter{Status: "unvalidated", Part: store.Part{Limit: 10}})
	if err != nil || len(listed.Items) != 3 {
		t.Fatalf("Anna sees %+v, %v", listed, err)
	}
	must.Get(db.ValidatePrediction(t.Context(), db.anna, listed.Items[0].ID, learning.FeedbackOK))(t)
	db.detect(t, detection(12, true), true)
}

func TestDetectionsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	db := open(t)
	var recorded atomic.Int64
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			n := detection(float64(i)/10, true)
			n.Time = n.Time.Add(time.Duration(i) * time.Second)
			if ok, err := db.RecordDetection(t.Context(), n); err != nil {
				t.Error(err)
			} else if ok {
				recorded.Add(1)
			}
		})
	}
	group.Wait()
	must.Equal(t, "anomalies of one sensor in ten minutes", int64(1), recorded.Load())
}

// TestDetectionOfADeletedSensorIsNotRecorded shows contract 4.6 for predictions.
func TestDetectionOfADeletedSensorIsNotRecorded(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	said := func(ago time.Duration) learning.NewPrediction {
		n := detection(0, false)
		n.Time = db.now(t).Add(-ago)
		n.MessageID = n.Time.String()[:30]
		return n
	}
	db.detect(t, said(0), true)
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.detect(t, said(0), false)
	db.detect(t, said(time.Minute), false)
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	db.detect(t, said(time.Minute), false) // was Anna's
	db.detect(t, said(0), true)
	must.Equal(t, "the next owner sees predictions", 1, len(must.Get(db.Predictions(t.Context(), db.bruno, learning.PredictionFilter{Part: store.Part{Limit: 10}}))(t).Items))
}

// TestOpenAnomalyOfAnOwnerBefore shows that a prediction which the owner of today
// cannot see does not keep anomalies of their sensor from being recorded.
func TestOpenAnomalyOfAnOwnerBefore(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	ahead := detection(0, true)
	ahead.Time = db.now(t).Add(5 * time.Minute)
	must.Get(db.RecordPrediction(t.Context(), db.anna, ahead))(t)
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	now := detection(1, true)
	now.Time = db.now(t)
	db.detect(t, now, true)
	again := detection(2, true)
	again.Time = now.Time.Add(time.Minute)
	db.detect(t, again, false) // their own open one still does
}

// TestDetectionBesideTheDeletionStaysHidden records a prediction while the
// deletion of its sensor has begun and is not committed.
func TestDetectionBesideTheDeletionStaysHidden(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	deletion := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = deletion.Rollback(context.WithoutCancel(t.Context())) }()
	must.Get(deletion.Exec(t.Context(), `DELETE FROM sensors WHERE node_id = 'n1'`))(t)
	n := detection(0, true)
	n.Time = db.now(t)
	var group sync.WaitGroup
	group.Go(func() { db.detect(t, n, false) })
	db.waits(t)
	must.Do(t, deletion.Commit(t.Context()))
	group.Wait()
}
