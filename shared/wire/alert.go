package wire

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/reading"
)

type alertJSON struct {
	CustomerID  int64     `json:"customer_id,omitzero"` // the channel; absent in the open one
	NodeID      string    `json:"node_id"`
	MessageID   string    `json:"message_id"`
	Timestamp   time.Time `json:"timestamp"`
	AlertType   string    `json:"alert_type"`
	Value       float64   `json:"value"`
	Threshold   float64   `json:"threshold"`
	Temperature *float64  `json:"temperature,omitzero"`
	Humidity    *float64  `json:"humidity,omitzero"`
	Drill       string    `json:"drill,omitzero"`
}

// EncodeAlert writes a message of topic alerts. It fails only on infinity, which
// JSON cannot represent.
func EncodeAlert(e alert.Event) ([]byte, error) {
	encoded, err := json.Marshal(alertJSON{
		CustomerID: int64(e.Channel), NodeID: e.NodeID, MessageID: e.MessageID, Timestamp: reading.TruncateTime(e.Time),
		AlertType: string(e.Type), Value: e.Value, Threshold: e.Threshold,
		Temperature: reading.Pointer(e.Temperature), Humidity: reading.Pointer(e.Humidity), Drill: e.Drill,
	})
	if err != nil {
		return nil, fmt.Errorf("encode alert of %s: %w", e.NodeID, err)
	}
	return encoded, nil
}

// DecodeAlert reads a message of topic alerts and refuses one that no reading
// could have caused.
func DecodeAlert(encoded []byte) (alert.Event, error) {
	var in alertJSON
	if err := json.Unmarshal(encoded, &in); err != nil {
		return alert.Event{}, fmt.Errorf("decode alert: %w", err)
	}
	e := alert.Event{
		Channel: reading.Channel(in.CustomerID), NodeID: in.NodeID, MessageID: in.MessageID, Time: reading.TruncateTime(in.Timestamp),
		Type: alert.Type(in.AlertType), Value: in.Value, Threshold: in.Threshold,
		Temperature: reading.Value(in.Temperature), Humidity: reading.Value(in.Humidity), Drill: in.Drill,
	}
	if in.CustomerID < 0 {
		return alert.Event{}, fmt.Errorf("decode alert: customer_id is %d", in.CustomerID)
	}
	if err := e.Validate(); err != nil {
		return alert.Event{}, fmt.Errorf("decode alert: %w", err)
	}
	return e, nil
}
