package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
)

// Alert is a message of topic alerts: a reading that breaks a limit or of which
// learning has found something, or of a node whose rules remember something.
type Alert struct {
	alert.Event // its Type is empty when the reading exceeds no threshold

	GatewayID string         // of the enrolled gateway that the reading came through; empty in the open channel
	Recent    reading.Window // readings of the node before it, where its rules need them

	Findings []incident.Finding // of learning, one of a kind
	Versions map[int64]int64    // of the rules that detection knew, by id
}

// findingJSON is a finding; one that does not hold has the kind alone.
type findingJSON struct {
	Kind        incident.Kind     `json:"kind"`
	Holds       bool              `json:"holds"`
	Score       float64           `json:"score,omitzero"`
	Cause       string            `json:"cause,omitzero"`
	Reason      string            `json:"reason,omitzero"`
	Severity    incident.Severity `json:"severity,omitzero"`
	Quantity    incident.Quantity `json:"quantity,omitzero"`
	Value       float64           `json:"value,omitzero"`
	Low         float64           `json:"low,omitzero"`
	High        float64           `json:"high,omitzero"`
	Probability float64           `json:"probability,omitzero"`
	Limit       float64           `json:"limit,omitzero"`
	EarliestS   float64           `json:"earliest_s,omitzero"`
	LatestS     float64           `json:"latest_s,omitzero"`
}

func encodeFinding(f incident.Finding) findingJSON {
	return findingJSON{
		Kind: f.Kind, Holds: f.Holds, Score: f.Score, Cause: f.Cause, Reason: f.Reason, Severity: f.Severity, Quantity: f.Quantity, Value: f.Value,
		Low: f.Low, High: f.High, Probability: f.Probability, Limit: f.Limit, EarliestS: f.Earliest.Seconds(), LatestS: f.Latest.Seconds(),
	}
}

func (f findingJSON) finding() incident.Finding {
	return incident.Finding{
		Kind: f.Kind, Holds: f.Holds, Score: f.Score, Cause: f.Cause, Reason: f.Reason, Severity: f.Severity, Quantity: f.Quantity, Value: f.Value,
		Low: f.Low, High: f.High, Probability: f.Probability, Limit: f.Limit,
		Earliest: time.Duration(f.EarliestS * float64(time.Second)), Latest: time.Duration(f.LatestS * float64(time.Second)),
	}
}

type alertJSON struct {
	CustomerID  int64       `json:"customer_id,omitzero"` // the channel; absent in the open one
	GatewayID   string      `json:"gateway_id,omitzero"`
	NodeID      string      `json:"node_id"`
	MessageID   string      `json:"message_id"`
	Timestamp   time.Time   `json:"timestamp"`
	AlertType   string      `json:"alert_type,omitzero"`
	Value       *float64    `json:"value,omitzero"`
	Threshold   *float64    `json:"threshold,omitzero"`
	Temperature float64     `json:"temperature"`
	Humidity    float64     `json:"humidity"`
	Recent      *windowJSON `json:"recent,omitzero"`

	Findings []findingJSON   `json:"findings,omitzero"`
	Versions map[int64]int64 `json:"rule_versions,omitzero"`
}

// EncodeAlert writes a message of topic alerts. It fails only on a number that
// JSON has no form for.
func EncodeAlert(a Alert) ([]byte, error) {
	out := alertJSON{
		CustomerID: int64(a.Channel), GatewayID: a.GatewayID, NodeID: a.NodeID, MessageID: a.MessageID, Timestamp: reading.TruncateTime(a.Time),
		AlertType: string(a.Type), Temperature: a.Temperature, Humidity: a.Humidity, Versions: a.Versions,
	}
	for _, f := range a.Findings {
		out.Findings = append(out.Findings, encodeFinding(f))
	}
	if a.Type != "" {
		out.Value, out.Threshold = &a.Value, &a.Threshold
	}
	if a.Recent.Len() > 0 {
		out.Recent = &windowJSON{Age: a.Recent.Age, Temperature: a.Recent.Temperature, Humidity: a.Recent.Humidity}
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode alert of %s: %w", a.NodeID, err)
	}
	return encoded, nil
}

// DecodeAlert reads a message of topic alerts and refuses one that no reading
// could have caused. A window that is invalid is dropped, as [DecodeData] does.
// Messages of versions that knew no incidents have neither gateway_id nor recent, findings nor rule_versions.
func DecodeAlert(encoded []byte) (Alert, error) {
	var in alertJSON
	if err := json.Unmarshal(encoded, &in); err != nil {
		return Alert{}, fmt.Errorf("decode alert: %w", err)
	}
	a := Alert{GatewayID: in.GatewayID, Versions: in.Versions, Event: alert.Event{
		Channel: reading.Channel(in.CustomerID), NodeID: in.NodeID, MessageID: in.MessageID, Time: reading.TruncateTime(in.Timestamp),
		Type: alert.Type(in.AlertType), Temperature: in.Temperature, Humidity: in.Humidity,
	}}
	if in.Value != nil && in.Threshold != nil {
		a.Value, a.Threshold = *in.Value, *in.Threshold
	}
	for _, f := range in.Findings {
		a.Findings = append(a.Findings, f.finding())
	}
	if err := a.validate(); err != nil {
		return Alert{}, fmt.Errorf("decode alert: %w", err)
	}
	if in.Recent != nil {
		window := reading.Window{Age: in.Recent.Age, Temperature: in.Recent.Temperature, Humidity: in.Recent.Humidity}
		if window.Validate() == nil {
			a.Recent = window
		}
	}
	return a, nil
}

func (a Alert) validate() error {
	if a.Channel < 0 {
		return fmt.Errorf("customer_id is %d", a.Channel)
	}
	if a.GatewayID != "" {
		if err := ValidateGatewayID(a.GatewayID); err != nil {
			return err
		}
	}
	for _, f := range a.Findings {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	if a.Type == "" {
		return a.Reading().Validate()
	}
	return a.Validate()
}
