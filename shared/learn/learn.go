// Package learn makes the two models of Coldaisle and uses them: the detector, an isolation forest and two
// rules for what a forest misses, and the forecaster, which predicts how temperature and humidity change within
// 20 seconds. People's verdicts measure the detector and change nothing in it.
//
// It knows nothing of storage, topics or functions. The same readings with the same seed give the same models,
// bit for bit, on any number of cores.
package learn

import (
	"errors"
	"fmt"
	"time"

	"coldaisle.dev/shared/reading"
)

// MinRows is how many rows a training needs: with fewer the tail of the scores,
// where the threshold lies, is a handful of readings.
const MinRows = 500

// ErrTooFewRows marks a training with fewer rows than [MinRows].
var ErrTooFewRows = errors.New("too few readings to train on")

// NodeHistory is what one node measured, oldest first.
type NodeHistory struct {
	NodeID   string
	Readings []reading.Reading
}

// Labelled is a reading that a person has judged, with its window.
type Labelled struct {
	Reading   reading.Reading
	Window    reading.Window
	Anomalous bool    // the truth, by the person's verdict
	Weight    float64 // how many readings it stands for in the sample
}

// Input is the input of a training.
type Input struct {
	History []NodeHistory
	// Labels are the readings that people judged. The detector is measured on them.
	Labels []Labelled
	// The models in use; nil if there are none. Each stays unless something shows that the new one is no worse.
	LiveDetector   *Detector
	LiveForecaster *Forecaster
	Seed           uint64
	// Run, its id in the database, and the time of its start name the models. Models made
	// from files have no run: 0.
	Run     int64
	Started time.Time
}

// Result is the result of a training.
type Result struct {
	Detector   *Detector   // nil if the live one stays
	Forecaster *Forecaster // nil if the live one stays
	Rows       int         // readings that were learned from
	Metrics    Metrics
}

// Metrics say how good the models are, measured on readings and verdicts that they did
// not learn from. A value that cannot be measured is nil.
type Metrics struct {
	Anomaly     AnomalyMetrics  `json:"anomaly"`
	Forecasting ForecastMetrics `json:"forecasting"`
}

// AnomalyMetrics are the metrics of the new detector, whether it was published or not. A verdict
// is weighted by the number of readings that its own stands for, because people are asked far
// more often about readings that the detector flags.
type AnomalyMetrics struct {
	F1        *float64 `json:"f1_score"`
	Accuracy  *float64 `json:"accuracy"`
	Precision *float64 `json:"precision"`
	Recall    *float64 `json:"recall"`
	LiveF1    *float64 `json:"live_f1_score"` // of the detector in use, on the same verdicts
	Threshold float64  `json:"threshold"`     // score above which a reading is an anomaly
	Rows      int      `json:"rows"`          // readings learned from
	Held      int      `json:"held_out"`      // verdicts measured on
	Published bool     `json:"published"`
	Reason    string   `json:"reason"` // why it was published, or not
}

// ForecastMetrics are the metrics of the new forecaster on the newest quarter of history, whether it was
// published or not. Skill is how much better it is than predicting no change, 0.04 for 4 %.
type ForecastMetrics struct {
	RMSETemperature  *float64 `json:"rmse_temp"`      // °C
	MAEHumidity      *float64 `json:"mae_humidity"`   // % relative humidity
	SkillTemperature *float64 `json:"skill_temp"`     // of the RMSE
	SkillHumidity    *float64 `json:"skill_humidity"` // of the MAE
	Rows             int      `json:"rows"`
	Held             int      `json:"held_out"`
	Temperature      string   `json:"temperature_model"` // forest or persistence
	Humidity         string   `json:"humidity_model"`    // forest or persistence
	Published        bool     `json:"published"`
	Reason           string   `json:"reason"`
}

// Info describes a model within its artifact.
type Info struct {
	Name     string    `json:"name"` // such as anomaly_v20260301T120004Z_000017
	Created  time.Time `json:"created"`
	From     time.Time `json:"from"` // oldest reading learned from
	To       time.Time `json:"to"`   // newest
	Rows     int       `json:"rows"`
	Seed     uint64    `json:"seed"`
	Features []string  `json:"features"`
	// The metrics of its kind of model.
	Anomaly     *AnomalyMetrics  `json:"anomaly,omitempty"`
	Forecasting *ForecastMetrics `json:"forecasting,omitempty"`
}

// nameOf is the name of a model: its kind, the start of its training in UTC, and its run, because two
// runs may start in the same second. Names of a kind sort from old to new, as object storage lists them.
func nameOf(kind string, started time.Time, run int64) string {
	name := fmt.Sprintf("%s_v%s", kind, started.UTC().Format("20060102T150405Z"))
	if run == 0 {
		return name
	}
	return fmt.Sprintf("%s_%06d", name, run)
}
