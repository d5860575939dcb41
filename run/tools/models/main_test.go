package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// TestGoingBack publishes two pairs and goes back to the first, as a person does.
func TestGoingBack(t *testing.T) {
	server := must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"}))(t)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "b"})
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL(), "http://"))
	bucket := must.Get(modelstore.Open(t.Context(), "b"))(t)
	t.Cleanup(func() { _ = bucket.Close() })
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	node := learn.NodeHistory{NodeID: "n"}
	for i := range learn.MinRows + 100 {
		node.Readings = append(node.Readings, reading.Reading{
			NodeID: "n", MessageID: "m", Time: noon.Add(time.Duration(30*i) * time.Second), Temperature: 20 + math.Sin(float64(i)), Humidity: 40,
		})
	}
	var live modelstore.Manifest
	for hour := range 2 {
		at := noon.Add(time.Duration(hour) * time.Hour)
		result := must.Get(learn.Train(t.Context(), learn.Input{History: []learn.NodeHistory{node}, Started: at}))(t)
		live = must.Get(bucket.Publish(t.Context(), 17, live, result.Detector, result.Forecaster, at))(t)
	}
	says := func(arguments ...string) string {
		t.Helper()
		var out bytes.Buffer
		must.Do(t, run(t.Context(), append([]string{"-bucket", "b", "-customer", "17"}, arguments...), &out, time.Now))
		return out.String()
	}
	const listed = "  anomaly_v20260301T120000Z\n* anomaly_v20260301T130000Z\n  forecasting_v20260301T120000Z\n* forecasting_v20260301T130000Z\n"
	must.Equal(t, "listed", listed, says())
	back := says("-anomaly", "anomaly_v20260301T120000Z")
	must.Contain(t, "said", back, "anomaly_v20260301T120000Z,forecasting_v20260301T130000Z")
	must.Contain(t, "afterwards listed", says(), "* anomaly_v20260301T120000Z\n  anomaly_v20260301T130000Z")
	for _, arguments := range [][]string{{}, {"-bucket", "b", "-anomaly", "anomaly_v20000101T000000Z"}, {"-colour"}} {
		err := run(t.Context(), arguments, &bytes.Buffer{}, time.Now)
		must.Equal(t, fmt.Sprint(arguments, " are taken"), false, err == nil)
	}
}
