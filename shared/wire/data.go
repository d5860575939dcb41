// Package wire encodes and decodes the JSON messages of the topics data, alerts
// and model-retraining for the gateway, the functions and the API.
//
// Encoders write the canonical form. Decoders also accept id for
// message_id and a missing timestamp (contract 9.2), and refuse everything else
// with an error that names the field; a refused message can never succeed, so
// consumers send it to the dead letter.
package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
)

// NodeIDAttribute is the Pub/Sub attribute of topic data that names the node.
const NodeIDAttribute = "node_id"

// Data is a message of topic data: a reading and the readings of the same node
// that came before it.
type Data struct {
	Reading reading.Reading
	Recent  reading.Window
}

// dataJSON is a message. Its window is decoded apart.
type dataJSON[Recent []byte | json.RawMessage] struct {
	MessageID   string    `json:"message_id,omitzero"`
	ID          string    `json:"id,omitzero"`
	NodeID      string    `json:"node_id"`
	Temperature *float64  `json:"temperature,omitzero"`
	Humidity    *float64  `json:"humidity,omitzero"`
	Timestamp   time.Time `json:"timestamp,omitzero"`
	Recent      Recent    `json:"recent,omitempty"` // base64
}

// EncodeData writes the canonical form of a message of topic data: without the values that
// are missing. It fails only on numbers that no valid reading or window has.
func EncodeData(d Data) ([]byte, error) {
	d.Reading.Temperature, d.Reading.Humidity = d.Reading.Temperature+0, d.Reading.Humidity+0 // 0 for -0
	recent, err := encodeWindow(d.Recent)
	if err != nil {
		return nil, fmt.Errorf("encode window of %s: %w", d.Reading.NodeID, err)
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // a message id may consist of what that makes six times as long
	err = encoder.Encode(dataJSON[[]byte]{
		MessageID: d.Reading.MessageID, NodeID: d.Reading.NodeID,
		Temperature: reading.Pointer(d.Reading.Temperature), Humidity: reading.Pointer(d.Reading.Humidity),
		Timestamp: reading.TruncateTime(d.Reading.Time), Recent: recent,
	})
	if err != nil {
		return nil, fmt.Errorf("encode reading of %s: %w", d.Reading.NodeID, err)
	}
	return bytes.TrimSuffix(encoded.Bytes(), []byte("\n")), nil
}

// EncodeDrill writes the message of topic data by which an alarm drill begins: a reading of the
// probe, which nobody stores, with the drill's code.
func EncodeDrill(code string, at time.Time) []byte {
	encoded, err := json.Marshal(struct {
		dataJSON[[]byte]
		Drill string `json:"drill"`
	}{dataJSON[[]byte]{MessageID: "drill", NodeID: reading.ProbeNodeID, Temperature: new(0.0), Humidity: new(0.0), Timestamp: reading.TruncateTime(at)}, code})
	if err != nil {
		panic(err) // all of it can be encoded
	}
	return encoded
}

// DrillOf is the code of the drill that a reading of the probe begins, empty for none.
func DrillOf(encoded []byte) string {
	var in struct {
		Drill string `json:"drill"`
	}
	_ = json.Unmarshal(encoded, &in) // it has been decoded before
	return in.Drill
}

// DecodeData reads a message of topic data. published is the push message's
// publish time, by which the reading is dated, see [reading.Dated].
func DecodeData(encoded []byte, published time.Time) (Data, error) {
	r, recent, err := DecodeReading(encoded, func(stamped time.Time) (time.Time, error) { return reading.Dated(stamped, published), nil })
	if err != nil {
		return Data{}, err
	}
	return Data{Reading: r, Recent: DecodeWindow(recent)}, nil
}

// DecodeReading decodes a message of topic data without its window, the costly part, which
// [DecodeWindow] decodes. date receives the message's timestamp, zero if it has none.
func DecodeReading(encoded []byte, date func(stamped time.Time) (time.Time, error)) (r reading.Reading, recent []byte, err error) {
	var in dataJSON[json.RawMessage]
	if err := json.Unmarshal(encoded, &in); err != nil {
		return reading.Reading{}, nil, fmt.Errorf("decode reading: %w", err)
	}
	at, err := date(in.Timestamp)
	if err != nil {
		return reading.Reading{}, nil, err
	}
	r = reading.Reading{
		NodeID:      in.NodeID,
		MessageID:   cmp.Or(in.MessageID, in.ID),
		Time:        at,
		Temperature: reading.Value(in.Temperature),
		Humidity:    reading.Value(in.Humidity),
	}
	if err := r.Validate(); err != nil {
		return reading.Reading{}, nil, fmt.Errorf("decode reading: %w", err)
	}
	return r, in.Recent, nil
}
