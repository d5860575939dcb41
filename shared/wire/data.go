// Package wire encodes and decodes the JSON messages of the topics data, alerts
// and model-retraining for the gateway, the functions and the API.
//
// Encoders write the canonical form. Decoders also accept id for
// message_id and a missing timestamp (contract 9.2), and refuse everything else
// with an error that names the field; a refused message can never succeed, so
// consumers send it to the dead letter.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

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

type readingJSON struct {
	MessageID   string    `json:"message_id,omitzero"`
	ID          string    `json:"id,omitzero"`
	NodeID      string    `json:"node_id"`
	Temperature *float64  `json:"temperature"`
	Humidity    *float64  `json:"humidity"`
	Timestamp   time.Time `json:"timestamp,omitzero"`
}

type dataJSON struct {
	readingJSON

	Recent *windowJSON `json:"recent,omitzero"`
}

type windowJSON struct {
	Age         []float64 `json:"age_s"`
	Temperature []float64 `json:"temperature"`
	Humidity    []float64 `json:"humidity"`
}

// EncodeData writes the canonical form of a message of topic data. It fails
// only on a number that JSON has no form for.
func EncodeData(d Data) ([]byte, error) {
	// What surrounds a full window's 120 readings is under 500 bytes.
	encoded, err := appendData(make([]byte, 0, 512+20*d.Recent.Len()), d)
	if err != nil {
		return nil, fmt.Errorf("encode reading of %s: %w", d.Reading.NodeID, err)
	}
	return encoded, nil
}

// DecodeData reads a message of topic data. published is the push message's
// publish time, by which the reading is dated, see [reading.Dated].
//
// A message whose reading is valid but whose recent is not keeps the reading
// and drops the window: features can be missed, a reading must not be.
func DecodeData(encoded []byte, published time.Time) (Data, error) {
	return DecodeDataDated(encoded, func(stamped time.Time) (time.Time, error) { return reading.Dated(stamped, published), nil })
}

// DecodeDataDated is [DecodeData] for who dates the reading in another way. date is
// given the timestamp of the message, zero for none.
func DecodeDataDated(encoded []byte, date func(stamped time.Time) (time.Time, error)) (Data, error) {
	var in dataJSON
	if err := json.Unmarshal(encoded, &in); err != nil {
		return Data{}, fmt.Errorf("decode reading: %w", err)
	}
	r, err := in.reading(date)
	if err != nil {
		return Data{}, err
	}
	d := Data{Reading: r}
	if in.Recent != nil {
		window := reading.Window{Age: in.Recent.Age, Temperature: in.Recent.Temperature, Humidity: in.Recent.Humidity}
		if window.Validate() == nil {
			d.Recent = window
		}
	}
	return d, nil
}

// DecodeReadingDated is [DecodeDataDated] without the window, which costs most of
// the time.
func DecodeReadingDated(encoded []byte, date func(stamped time.Time) (time.Time, error)) (reading.Reading, error) {
	var in readingJSON
	if err := json.Unmarshal(encoded, &in); err != nil {
		return reading.Reading{}, fmt.Errorf("decode reading: %w", err)
	}
	return in.reading(date)
}

// reading checks and completes what was decoded.
func (in readingJSON) reading(date func(stamped time.Time) (time.Time, error)) (reading.Reading, error) {
	if in.Temperature == nil || in.Humidity == nil {
		return reading.Reading{}, errors.New("decode reading: temperature and humidity are required")
	}
	at, err := date(in.Timestamp)
	if err != nil {
		return reading.Reading{}, err
	}
	r := reading.Reading{
		NodeID:      in.NodeID,
		MessageID:   in.MessageID,
		Time:        at,
		Temperature: *in.Temperature,
		Humidity:    *in.Humidity,
	}
	if r.MessageID == "" {
		r.MessageID = in.ID
	}
	if err := r.Validate(); err != nil {
		return reading.Reading{}, fmt.Errorf("decode reading: %w", err)
	}
	return r, nil
}
