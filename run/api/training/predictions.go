package training

import (
	"context"
	"net/http"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

type prediction struct {
	ID                int64     `json:"id" doc:"Primary key." example:"118"`
	SensorID          string    `json:"sensor_id" doc:"Sensor that was predicted." example:"esp32-7f3a"`
	Timestamp         rest.Time `json:"timestamp" doc:"Time that the prediction is about, UTC." example:"2026-03-01T12:00:00Z"`
	PredictedTemp     *float64  `json:"predicted_temp" doc:"Predicted temperature in degrees Celsius; null when there was no forecast." example:"24.1"`
	PredictedHumidity *float64  `json:"predicted_humidity" doc:"Predicted relative humidity in percent; null when there was no forecast." example:"41.5"`
	ActualTemp        *float64  `json:"actual_temp" doc:"Measured temperature in degrees Celsius." example:"24.3"`
	ActualHumidity    *float64  `json:"actual_humidity" doc:"Measured relative humidity in percent." example:"41.2"`
	AnomalyPredicted  bool      `json:"anomaly_predicted" doc:"Whether the reading was judged anomalous." example:"true"`
	Score             *float64  `json:"score" doc:"How odd the detector's forest found the reading, from 0 to 1; null where it did not judge it." example:"0.62"`
	Feedback          *string   `json:"feedback" enum:"ok,not_ok" doc:"The verdict on the prediction; null while unvalidated." example:"ok"`
	UsedInTraining    bool      `json:"used_in_training" doc:"Whether a training run has read the verdict." example:"false"`
	CreatedAt         rest.Time `json:"created_at" doc:"Time of creation, UTC." example:"2026-03-01T12:00:02Z"`
}

type predictionPath struct {
	ID int64 `path:"id" doc:"Id of a prediction for one of the caller's sensors." example:"118"`
}

type listPredictionsInput struct {
	Status   string                      `query:"status" enum:"unvalidated,validated,waiting" doc:"Only those without a verdict, with one, or of ours with one that waits for training." example:"unvalidated"`
	SensorID string                      `query:"sensor_id" doc:"Only those of one sensor." example:"esp32-7f3a"`
	After    rest.Cursor[store.Position] `query:"after"`
	Limit    int                         `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many predictions at most." example:"50"`
}

type newPrediction struct {
	_                 struct{}        `additionalProperties:"true"`
	SensorID          input.NodeID    `json:"sensor_id"`
	Timestamp         input.Timestamp `json:"timestamp" doc:"Time that the prediction is about."`
	PredictedTemp     *float64        `json:"predicted_temp,omitempty" minimum:"-40" maximum:"125" doc:"Predicted temperature in degrees Celsius." example:"24.1"`
	PredictedHumidity *float64        `json:"predicted_humidity,omitempty" minimum:"0" maximum:"100" doc:"Predicted relative humidity in percent." example:"41.5"`
	ActualTemp        *float64        `json:"actual_temp,omitempty" minimum:"-40" maximum:"125" doc:"Measured temperature in degrees Celsius." example:"24.3"`
	ActualHumidity    *float64        `json:"actual_humidity,omitempty" minimum:"0" maximum:"100" doc:"Measured relative humidity in percent." example:"41.2"`
	AnomalyPredicted  bool            `json:"anomaly_predicted" doc:"Whether the reading was judged anomalous." example:"true"`
}

type verdict struct {
	_        struct{} `additionalProperties:"true"`
	Feedback string   `json:"feedback" enum:"ok,not_ok" doc:"Whether the prediction was right." example:"ok"`
}

type validateInput struct {
	ID   int64 `path:"id" doc:"Id of a prediction for one of the caller's sensors." example:"118"`
	Body verdict
}

type validated struct {
	ID             int64  `json:"id" doc:"Primary key of the prediction." example:"118"`
	Feedback       string `json:"feedback" enum:"ok,not_ok" doc:"The verdict as stored." example:"ok"`
	UsedInTraining bool   `json:"used_in_training" doc:"Whether a training run has read the verdict." example:"false"`
}

type predictionStats struct {
	TotalPredictions   int  `json:"total_predictions" doc:"Predictions for the caller's sensors." example:"412"`
	ValidatedCount     int  `json:"validated_count" doc:"Of these, with a verdict." example:"87"`
	OkCount            int  `json:"ok_count" doc:"Verdicts that the prediction was right." example:"61"`
	NotOkCount         int  `json:"not_ok_count" doc:"Verdicts that it was wrong." example:"26"`
	ReadyForRetraining bool `json:"ready_for_retraining" doc:"Whether 100 validated predictions of ours wait for training; those of other models do not count." example:"false"`
}

// Handlers answer the operations on predictions and training runs.
type Handlers struct {
	DB        *store.DB
	Retrainer *Retrainer
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.registerPredictions(r)
	h.registerTraining(r)
	h.registerSettings(r)
}

func (h *Handlers) registerPredictions(r *rest.API) {
	// Called by the validation page.
	rest.Register(r, rest.Operation{
		ID: "listPredictions", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/prediction-feedback", Tag: rest.TagPredictions,
		Summary: "List predictions, newest first",
	}, h.listPredictions, fairqueue.ErrNoSlot)
	// Called by models other than ours. A repeat for the same sensor and time hears that the
	// prediction exists.
	rest.Answer(r, rest.Operation{
		ID: "recordPrediction", Role: rest.Operator, Keys: rest.WriteKeysInRooms, Creates: true, Method: http.MethodPost, Path: "/api/v1/prediction-feedback", Tag: rest.TagPredictions,
		Status: http.StatusCreated, Summary: "Record a prediction of another model",
	}, h.recordPrediction, store.ErrNoSensor, store.ErrPredictionExists)
	rest.Answer(r, rest.Operation{
		ID: "getPredictionStatistics", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/prediction-feedback/stats", Tag: rest.TagPredictions,
		Summary: "Count predictions and verdicts",
	}, h.predictionStats)
	rest.Answer(r, rest.Operation{
		ID: "getPrediction", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/prediction-feedback/{id}", Tag: rest.TagPredictions,
		Summary: "Read a prediction",
	}, h.prediction, store.ErrNoPrediction)
	// Called by the validation page. A repeat sets the same verdict again, until
	// a training run has used it.
	rest.Answer(r, rest.Operation{
		ID: "validatePrediction", Role: rest.Operator, Keys: rest.WriteKeysInRooms, Method: http.MethodPut, Path: "/api/v1/prediction-feedback/{id}", Tag: rest.TagPredictions,
		Summary:     "Validate a prediction",
		Description: "When 100 validated predictions of the caller's wait for training, both models are retrained.",
	}, h.validatePrediction, store.ErrNoPrediction, store.ErrPredictionUsed)
}

func predictionOf(p learning.Prediction) prediction {
	return prediction{
		ID: p.ID, SensorID: p.SensorID, Timestamp: rest.UTC(p.Time),
		PredictedTemp: p.PredictedTemperature, PredictedHumidity: p.PredictedHumidity,
		ActualTemp: p.ActualTemperature, ActualHumidity: p.ActualHumidity,
		AnomalyPredicted: p.AnomalyPredicted, Score: p.Score, Feedback: rest.OrNull(string(p.Feedback)), UsedInTraining: p.UsedInTraining,
		CreatedAt: rest.UTC(p.CreatedAt),
	}
}

func (h *Handlers) listPredictions(ctx context.Context, in *listPredictionsInput) (*rest.Page[prediction], error) {
	found, err := learning.New(h.DB).Predictions(ctx, auth.Caller(ctx), learning.PredictionFilter{
		Status: in.Status, SensorID: in.SensorID, PageRequest: store.PageRequest{After: in.After.Last, Limit: in.Limit},
	})
	return rest.NewPage(in.After, rest.List(found.Items, predictionOf), found.Total, found.Next), err
}

func (h *Handlers) prediction(ctx context.Context, in *predictionPath) (prediction, error) {
	found, err := learning.New(h.DB).Prediction(ctx, auth.Caller(ctx), in.ID)
	return predictionOf(found), err
}

func (h *Handlers) recordPrediction(ctx context.Context, in *rest.Body[newPrediction]) (prediction, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (prediction, audit.Entry, error) {
		recorded, err := learning.New(tx).RecordPrediction(ctx, auth.Caller(ctx), learning.NewPrediction{
			SensorID: string(in.Body.SensorID), Time: in.Body.Timestamp.Time,
			PredictedTemperature: in.Body.PredictedTemp, PredictedHumidity: in.Body.PredictedHumidity,
			ActualTemperature: in.Body.ActualTemp, ActualHumidity: in.Body.ActualHumidity,
			AnomalyPredicted: in.Body.AnomalyPredicted,
		})
		out := predictionOf(recorded)
		return out, audit.Entry{Subject: audit.Subject("prediction", recorded.ID), After: out}, err
	})
}

func (h *Handlers) predictionStats(ctx context.Context, _ *struct{}) (predictionStats, error) {
	counted, err := learning.New(h.DB).PredictionStats(ctx, auth.Caller(ctx))
	return predictionStats{
		TotalPredictions: counted.Total, ValidatedCount: counted.Validated,
		OkCount: counted.OK, NotOkCount: counted.NotOK, ReadyForRetraining: counted.ReadyForRetraining,
	}, err
}

func (h *Handlers) validatePrediction(ctx context.Context, in *validateInput) (validated, error) {
	updated, err := audit.Updated(ctx, h.DB, audit.Subject("prediction", in.ID), predictionOf,
		func(tx *store.DB) (learning.Prediction, error) {
			return learning.New(tx).Prediction(ctx, auth.Caller(ctx), in.ID)
		},
		func(tx *store.DB, _ learning.Prediction) (learning.Prediction, error) {
			return learning.New(tx).ValidatePrediction(ctx, auth.Caller(ctx), in.ID, learning.Feedback(in.Body.Feedback))
		})
	if err != nil {
		return validated{}, err
	}
	h.Retrainer.StartDue(ctx, auth.Caller(ctx))
	return validated{ID: updated.ID, Feedback: in.Body.Feedback, UsedInTraining: updated.UsedInTraining}, nil
}
