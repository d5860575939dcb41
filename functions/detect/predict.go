package detect

import (
	"context"
	"hash/fnv"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// Models gives the models in use, from memory.
type Models interface {
	Pair(ctx context.Context) modelstore.Pair
}

// NoModels is where there is no bucket: rules alone judge.
type NoModels struct{}

// Pair implements [Models].
func (NoModels) Pair(context.Context) modelstore.Pair { return modelstore.Pair{} }

// Predictions is the metadata database. RecordDetection returns once the record
// is durable.
type Predictions interface {
	RecordDetection(ctx context.Context, n store.NewPrediction) (bool, error)
}

// Predictor is the part of detection that learns: it judges each reading by the
// models in use and records the anomalies, and a sample of what the detector
// calls normal, for people to judge in turn. Before there is a detector only what
// breaks a rule is recorded: nothing has called the other readings normal. It
// implements [Learned].
type Predictor struct {
	models      Models
	predictions Predictions
	every       uint64 // one in so many normal readings is recorded
	extractors  sync.Pool
	log         *slog.Logger
	tally       *logmetrics.Tally
}

// NewPredictor returns a predictor that records one in every so many normal
// readings. A nil tally counts nothing.
func NewPredictor(m Models, predictions Predictions, every int, log *slog.Logger, counts *logmetrics.Tally) *Predictor {
	return &Predictor{
		models: m, predictions: predictions, every: uint64(max(every, 1)),
		extractors: sync.Pool{New: func() any { return new(features.Extractor) }},
		log:        log, tally: counts,
	}
}

// Observe implements [Learned].
func (p *Predictor) Observe(ctx context.Context, data wire.Data) error {
	n, worth := p.judge(p.models.Pair(ctx), data)
	if !worth {
		return nil
	}
	recorded, err := p.predictions.RecordDetection(ctx, n)
	if err != nil {
		return err
	}
	if recorded {
		p.tally.Add(ctx, "predictions_recorded", 1)
	}
	if recorded && n.AnomalyPredicted {
		p.log.InfoContext(ctx, "anomaly detected", "node_id", n.SensorID, "reading_id", n.MessageID, "model_version", n.ModelVersion)
	}
	return nil
}

// judge reports what the models say of a reading and whether it is worth a
// record. For most readings it does nothing but judge.
func (p *Predictor) judge(pair modelstore.Pair, data wire.Data) (n store.NewPrediction, worth bool) {
	x, _ := p.extractors.Get().(*features.Extractor)
	defer p.extractors.Put(x)
	judgement := pair.Detector.Judge(x, data.Recent, data.Reading)
	sampled := judgement.Scored && p.sampled(data.Reading)
	if !judgement.Anomalous() && !sampled {
		return n, false
	}
	n = store.NewPrediction{
		SensorID: data.Reading.NodeID, Time: data.Reading.Time, MessageID: data.Reading.MessageID,
		AnomalyPredicted: judgement.Anomalous(), SamplingProbability: 1, ModelVersion: pair.Manifest.Version(),
	}
	if !n.AnomalyPredicted {
		n.SamplingProbability = 1 / float64(p.every)
	}
	if judgement.Scored {
		n.Score = &judgement.Score
	}
	if f, ok := foretold(x, pair.Forecaster, data.Recent, data.Reading); ok {
		n.PredictedTemperature, n.PredictedHumidity = &f.predictedTemperature, &f.predictedHumidity
		n.ActualTemperature, n.ActualHumidity = &f.actualTemperature, &f.actualHumidity
	} else {
		n.ActualTemperature, n.ActualHumidity = &data.Reading.Temperature, &data.Reading.Humidity
	}
	return n, true
}

// sampled chooses one in every so many readings by a hash of their identity: the
// same whatever instance is asked, and however often.
func (p *Predictor) sampled(r reading.Reading) bool {
	var space [reading.MaxNodeIDLength + reading.MaxMessageIDLength + 32]byte
	identity := append(append(space[:0], r.NodeID...), 0)
	identity = append(append(identity, r.MessageID...), 0)
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(identity, r.Time.UnixMicro(), 10))
	mixed := h.Sum64() * 0x9e3779b97f4a7c15 // FNV's low bits are poor
	return (mixed>>32)%p.every == 0
}

// outcome is a forecast and what came of it.
type outcome struct {
	predictedTemperature, predictedHumidity float64
	actualTemperature, actualHumidity       float64
}

// foretold forecasts, from the newest reading that is at least the horizon older
// than r, what there was at the horizon, and reads off what it was: between the
// two readings around that instant, in proportion to time.
func foretold(x *features.Extractor, f *learn.Forecaster, w reading.Window, r reading.Reading) (o outcome, ok bool) {
	const horizon = features.Horizon
	origin := w.Len() - 1
	for origin >= 0 && w.Age[origin] < horizon {
		origin--
	}
	if origin < features.MinPrevious {
		return o, false
	}
	// The instant lies after the origin and at or before the reading that follows
	// it or a later one.
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
	if gap > features.WidestGap || gap <= 0 {
		return o, false
	}
	share := (w.Age[before] - target) / gap
	o.actualTemperature = w.Temperature[before] + share*(temperature-w.Temperature[before])
	o.actualHumidity = w.Humidity[before] + share*(humidity-w.Humidity[before])

	// The window as it was for the origin.
	past := reading.Window{Age: make([]float64, origin), Temperature: w.Temperature[:origin], Humidity: w.Humidity[:origin]}
	for i := range past.Age {
		past.Age[i] = reading.RoundAge(w.Age[i] - w.Age[origin])
	}
	then := reading.Reading{
		NodeID: r.NodeID, Temperature: w.Temperature[origin], Humidity: w.Humidity[origin],
		Time: r.Time.Add(-time.Duration(math.Round(w.Age[origin] * float64(time.Second)))),
	}
	o.predictedTemperature, o.predictedHumidity, ok = f.Forecast(x, past, then, learn.Horizon)
	return o, ok
}
