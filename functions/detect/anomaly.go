package detect

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/learn"
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

// NoModels is for a function without a bucket of models: then only rules and statistics detect.
type NoModels struct{}

// Pair implements [Models].
func (NoModels) Pair(context.Context, int64) modelstore.Pair { return modelstore.Pair{} }

// AnomalyStore is the metadata database. RecordDetection returns when the record is
// durable.
type AnomalyStore interface {
	RoomStore
	RecordDetection(ctx context.Context, customer int64, n learning.NewPrediction, most int) (probability float64, err error)
}

// Questions is how many readings without an incident are recorded for users to judge, of an
// account in a UTC day: two of those that the detector calls anomalous, and one of the others.
const Questions = 3

// draw identifies the readings of a customer and UTC day that are anomalous, or that are not.
// maxDraws bounds those in memory.
type draw struct {
	customer, day int64
	anomalous     bool
}

const maxDraws = 10_000

// AnomalyDetector implements [AnomalyObserver]. For each reading it
//   - returns a finding if the reading is unusual for its node and its neighbours,
//   - returns a finding if a limit is forecast to be exceeded,
//   - records a prediction for users to validate if the reading is in the day's sample of those
//     that the detector calls anomalous, or in the sample of the others. Without a model only
//     the detector's two built-in rules (stuck, out of range) call readings anomalous.
type AnomalyDetector struct {
	models    Models
	store     AnomalyStore
	rooms     *roomCache
	questions int
	drawn     *lru.Cache[draw, float64] // the last known probability of a draw, which only falls
	shipped   *anomaly.Calibration      // for customers who have none yet
	clock     func() time.Time
	log       *slog.Logger
}

// NewAnomalyDetector returns a detector that records up to questions readings without an incident
// per account and day, at least two: one of each kind.
func NewAnomalyDetector(
	models Models, metadata AnomalyStore, questions int, clock func() time.Time, log *slog.Logger,
) *AnomalyDetector {
	drawn, _ := lru.New[draw, float64](maxDraws) // the library refuses only sizes below 1
	return &AnomalyDetector{
		models: models, store: metadata, rooms: newRoomCache(metadata, clock, log), questions: max(questions, 2), drawn: drawn,
		shipped: anomaly.Calibrate(nil), clock: clock, log: log,
	}
}

// Observe implements [AnomalyObserver].
func (d *AnomalyDetector) Observe(ctx context.Context, data wire.Data, sensor pipeline.SensorStatus) ([]incident.Finding, error) {
	pair := d.models.Pair(ctx, sensor.CustomerID)
	detection := pair.Detector.Detect(data.Recent, data.Reading)
	findings := d.find(ctx, data, sensor, cmp.Or(pair.Calibration, d.shipped), detection.Reason == learn.OutOfRange)
	if slices.ContainsFunc(findings, func(f incident.Finding) bool { return f.Kind == incident.KindAnomaly && f.Holds }) {
		return findings, nil // the incident's verdict validates it
	}
	return findings, d.sample(ctx, pair, detection, data, sensor)
}

// sample records the prediction for a reading if it is drawn. Few readings are, and most of the
// others are ruled out without the database.
func (d *AnomalyDetector) sample(
	ctx context.Context, pair modelstore.Pair, detection learn.Detection, data wire.Data, sensor pipeline.SensorStatus,
) error {
	among := draw{sensor.CustomerID, data.Reading.Time.Unix() / (24 * 60 * 60), detection.Anomalous()}
	if !detection.Scored && !among.anomalous {
		return nil
	}
	if probability, known := d.drawn.Get(among); known && learning.Draw(data.Reading) >= probability {
		return nil
	}
	most := (d.questions + 2) / 3
	if among.anomalous {
		most = d.questions - most
	}
	n := predictionOf(pair, detection, data, sensor.Corrections)
	probability, err := d.store.RecordDetection(ctx, sensor.CustomerID, n, most)
	if err != nil {
		return err
	}
	d.drawn.Add(among, probability)
	return nil
}

// predictionOf is the prediction that the models make for a reading, with corrected values.
func predictionOf(
	pair modelstore.Pair, detection learn.Detection, data wire.Data, corrections reading.Corrections,
) learning.NewPrediction {
	r := data.Reading
	n := learning.NewPrediction{
		Channel: r.Channel, SensorID: r.NodeID, Time: r.Time, MessageID: r.MessageID,
		AnomalyPredicted: detection.Anomalous(), ModelVersion: pair.Manifest.Version(),
	}
	if detection.Scored {
		n.Score = &detection.Score
	}
	predicted, actual, ok := compareForecast(pair.Forecaster, data.Recent, r)
	if !ok {
		predicted, actual = air{reading.Missing(), reading.Missing()}, air{r.Temperature, r.Humidity}
	}
	corrected := func(a air) (temperature, humidity *float64) {
		a.temperature, a.humidity = corrections.Values(r.Time, a.temperature, a.humidity)
		return reading.Pointer(a.temperature), reading.Pointer(a.humidity)
	}
	n.PredictedTemperature, n.PredictedHumidity = corrected(predicted)
	n.ActualTemperature, n.ActualHumidity = corrected(actual)
	return n
}

type air struct{ temperature, humidity float64 }

// compareForecast makes the forecast that was due at reading r: it forecasts from
// the newest entry of the window that is at least the horizon (20 s) older than r.
// The measured value at that time is interpolated from the two readings around it.
func compareForecast(f *learn.Forecaster, w reading.Window, r reading.Reading) (predicted, actual air, ok bool) {
	const horizon = features.Horizon
	origin := w.Len() - 1
	for origin >= 0 && w.Age[origin] < horizon {
		origin--
	}
	if origin < features.MinPrevious {
		return predicted, actual, false
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
		return predicted, actual, false
	}
	share := (w.Age[before] - target) / gap
	actual.temperature = w.Temperature[before] + share*(temperature-w.Temperature[before])
	actual.humidity = w.Humidity[before] + share*(humidity-w.Humidity[before])

	// The window as it was for the origin.
	past := reading.Window{Age: make([]float64, origin), Temperature: w.Temperature[:origin], Humidity: w.Humidity[:origin]}
	for i := range past.Age {
		past.Age[i] = w.Age[i] - w.Age[origin]
	}
	then := reading.Reading{
		NodeID: r.NodeID, Temperature: w.Temperature[origin], Humidity: w.Humidity[origin],
		Time: r.Time.Add(-time.Duration(math.Round(w.Age[origin] * float64(time.Second)))),
	}
	predicted.temperature, predicted.humidity, ok = f.Forecast(past, then, learn.Horizon)
	return predicted, actual, ok
}
