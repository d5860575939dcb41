package wire

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/v1"
)

// Retraining is a message of topic model-retraining: the request to carry out the run that
// is recorded under TrainingRunID.
type Retraining struct {
	TrainingRunID  int64     `json:"training_run_id"`
	TriggeredBy    string    `json:"triggered_by"` // auto_100_validated or manual
	ValidatedCount int       `json:"validated_count"`
	RequestedAt    time.Time `json:"requested_at"`
}

// DailyRefresh is the TriggeredBy of the daily request to recalibrate all customers. That
// request is not a training run and has no id.
const DailyRefresh = "daily_refresh"

// EncodeRetraining writes a message of topic model-retraining.
func EncodeRetraining(r Retraining) ([]byte, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode retraining request %d: %w", r.TrainingRunID, err)
	}
	return encoded, nil
}

// DecodeRetraining reads a message of topic model-retraining and refuses one that names no
// run, except a [DailyRefresh].
func DecodeRetraining(encoded []byte) (Retraining, error) {
	var r Retraining
	if err := json.Unmarshal(encoded, &r); err != nil {
		return Retraining{}, fmt.Errorf("decode retraining request: %w", err)
	}
	if r.TriggeredBy == DailyRefresh && r.TrainingRunID == 0 {
		return r, nil
	}
	if r.TrainingRunID < 1 {
		return Retraining{}, fmt.Errorf("decode retraining request: training_run_id must be positive, got %d", r.TrainingRunID)
	}
	return r, nil
}
