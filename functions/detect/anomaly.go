package detect

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// Models returns a customer's models in use, from memory.
type Models interface {
	Pair(ctx context.Context, customer int64) modelstore.Pair
}

// NoModels stands for the models where no bucket is configured: then the rules and the
// statistics detect.
type NoModels struct{}

// Pair implements [Models].
func (NoModels) Pair(context.Context, int64) modelstore.Pair { return modelstore.Pair{} }

// AnomalyStore is the metadata database. RecordDetection returns when the record is
// durable.
type AnomalyStore interface {
	RoomStore
	RecordDetection(ctx context.Context, n learning.NewPrediction) (bool, error)
}

// AnomalyDetector implements [AnomalyObserver]. For each reading it
//   - returns a finding if the reading is unusual for its node and its neighbours,
//   - returns a finding if a limit is forecast to be exceeded,
//   - records a prediction for users to validate if the detector calls the reading anomalous,
//     and for a sample of the normal ones. Without a model only the detector's two built-in
//     rules (stuck, out of range) call readings anomalous.
type AnomalyDetector struct {
	models      Models
	store       AnomalyStore
	rooms       *roomCache
	sampleEvery uint64               // one in so many normal readings is recorded
	shipped     *anomaly.Calibration // of customers who have none yet
	extractors  sync.Pool
	clock       func() time.Time
	log         *slog.Logger
	counters    *logmetrics.Counters
}

// NewAnomalyDetector returns a detector that records one in N normal readings, N
// being every. Nil counters count nothing.
func NewAnomalyDetector(
	models Models, metadata AnomalyStore, every int, clock func() time.Time, log *slog.Logger, counters *logmetrics.Counters,
) *AnomalyDetector {
	return &AnomalyDetector{
		models: models, store: metadata, rooms: newRoomCache(metadata, clock, log), sampleEvery: uint64(max(every, 1)),
		shipped: anomaly.Calibrate(nil), extractors: sync.Pool{New: func() any { return new(features.Extractor) }},
		clock: clock, log: log, counters: counters,
	}
}

// Observe implements [AnomalyObserver].
func (d *AnomalyDetector) Observe(ctx context.Context, data wire.Data, sensor pipeline.SensorStatus) ([]incident.Finding, error) {
	pair := d.models.Pair(ctx, sensor.CustomerID)
	n, reason, record := d.evaluate(pair, data)
	for _, values := range [...][2]*float64{{n.PredictedTemperature, n.PredictedHumidity}, {n.ActualTemperature, n.ActualHumidity}} {
		correct(sensor.Corrections, n.Time, values[0], values[1])
	}
	findings := d.find(ctx, data, sensor, cmp.Or(pair.Calibration, d.shipped), reason == learn.OutOfRange)
	if !record || slices.ContainsFunc(findings, func(f incident.Finding) bool { return f.Kind == incident.KindAnomaly && f.Holds }) {
		return findings, nil // the incident's verdict validates it
	}
	recorded, err := d.store.RecordDetection(ctx, n)
	if err != nil {
		return findings, err
	}
	if recorded {
		d.counters.Add(ctx, "predictions_recorded", 1)
	}
	if recorded && n.AnomalyPredicted {
		d.log.InfoContext(ctx, "anomaly detected", "node_id", n.SensorID, "reading_id", n.MessageID, "model_version", n.ModelVersion)
	}
	return findings, nil
}

// correct corrects values of a time, of which either may be nil.
func correct(c reading.Corrections, at time.Time, temperature, humidity *float64) {
	t, h := c.Values(at, reading.Value(temperature), reading.Value(humidity))
	if temperature != nil {
		*temperature = t
	}
	if humidity != nil {
		*humidity = h
	}
}

// evaluate runs the models on a reading and reports whether to record the result.
// Most readings are neither anomalous nor sampled: for them it only detects.
func (d *AnomalyDetector) evaluate(pair modelstore.Pair, data wire.Data) (n learning.NewPrediction, reason learn.Reason, record bool) {
	x, _ := d.extractors.Get().(*features.Extractor)
	defer d.extractors.Put(x)
	detection := pair.Detector.Detect(x, data.Recent, data.Reading)
	sampled := detection.Scored && d.sampled(data.Reading)
	if !detection.Anomalous() && !sampled {
		return n, detection.Reason, false
	}
	n = learning.NewPrediction{
		Channel: data.Reading.Channel, SensorID: data.Reading.NodeID, Time: data.Reading.Time, MessageID: data.Reading.MessageID,
		AnomalyPredicted: detection.Anomalous(), SamplingProbability: 1, ModelVersion: pair.Manifest.Version(),
	}
	if !n.AnomalyPredicted {
		n.SamplingProbability = 1 / float64(d.sampleEvery)
	}
	if detection.Scored {
		n.Score = &detection.Score
	}
	if f, ok := compareForecast(x, pair.Forecaster, data.Recent, data.Reading); ok {
		n.PredictedTemperature, n.PredictedHumidity = reading.Pointer(f.predictedTemperature), reading.Pointer(f.predictedHumidity)
		n.ActualTemperature, n.ActualHumidity = reading.Pointer(f.actualTemperature), reading.Pointer(f.actualHumidity)
	} else {
		n.ActualTemperature, n.ActualHumidity = reading.Pointer(data.Reading.Temperature), reading.Pointer(data.Reading.Humidity)
	}
	return n, detection.Reason, true
}

// sampled selects one in sampleEvery readings by a hash of node, message id and time, so that
// every instance and every redelivery selects the same ones.
func (d *AnomalyDetector) sampled(r reading.Reading) bool {
	var buffer [reading.MaxNodeIDLength + reading.MaxMessageIDLength + 32]byte
	identity := append(append(buffer[:0], r.NodeID...), 0)
	identity = append(append(identity, r.MessageID...), 0)
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(identity, r.Time.UnixMicro(), 10))
	mixed := h.Sum64() * 0x9e3779b97f4a7c15 // FNV's low bits are poor
	return (mixed>>32)%d.sampleEvery == 0
}

// forecastComparison is a forecast and the measurement at its time.
type forecastComparison struct {
	predictedTemperature, predictedHumidity float64
	actualTemperature, actualHumidity       float64
}

// compareForecast makes the forecast that was due at reading r: it forecasts from
// the newest entry of the window that is at least the horizon (20 s) older than r.
// The measured value at that time is interpolated from the two readings around it.
func compareForecast(x *features.Extractor, f *learn.Forecaster, w reading.Window, r reading.Reading) (o forecastComparison, ok bool) {
	const horizon = features.Horizon
	origin := w.Len() - 1
	for origin >= 0 && w.Age[origin] < horizon {
		origin--
	}
	if origin < features.MinPrevious {
		return o, false
	}
	// target is the age of the time that is forecast. The readings around it are
	// before and the one that follows, which is r after the last entry.
	target := w.Age[origin] - horizon
	before := origin
	for before+1 < w.Len() && w.Age[before+1] > target {
		before++
	}
	age, temperature, humidity := 0.0, r.Temperature, r.Humidity
	if before+1 < w.Len() {
		age, temperature, humidity = w.Age[before+1], w.Temperature[before+1], w.Humidity[before+1]
	}
	gap := w.Age[before] - age
	if gap > features.MaxInterpolationGap || gap <= 0 {
		return o, false
	}
	share := (w.Age[before] - target) / gap
	o.actualTemperature = w.Temperature[before] + share*(temperature-w.Temperature[before])
	o.actualHumidity = w.Humidity[before] + share*(humidity-w.Humidity[before])

	// The window as it was for the origin.
	past := reading.Window{Age: make([]float64, origin), Temperature: w.Temperature[:origin], Humidity: w.Humidity[:origin]}
	for i := range past.Age {
		past.Age[i] = w.Age[i] - w.Age[origin]
	}
	then := reading.Reading{
		NodeID: r.NodeID, Temperature: w.Temperature[origin], Humidity: w.Humidity[origin],
		Time: r.Time.Add(-time.Duration(math.Round(w.Age[origin] * float64(time.Second)))),
	}
	o.predictedTemperature, o.predictedHumidity, ok = f.Forecast(x, past, then, learn.Horizon)
	return o, ok
}
