package gateway

import (
	"crypto/ed25519"
	"encoding/base64"
	"strconv"
	"time"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// Enrolment is the identity of an enrolled gateway.
type Enrolment interface {
	// ID is kept with each reading in the outbox.
	ID() string
	// Sign returns the attributes of a signed message of topic data.
	Sign(at time.Time, age wire.Age, data []byte) map[string]string
	// Time converts an uptime within a boot of the machine to a time. It returns false if the
	// time never became known in that boot.
	Time(boot [16]byte, uptime time.Duration) (at time.Time, ok bool)
	// Revoked reports whether nothing is published under it any more.
	Revoked() bool
}

// Why a reading of the outbox is not published.
const (
	// withheldEnrolment: the reading was taken under another enrolment and belongs to
	// the customer of that time.
	withheldEnrolment = "enrolment"
	// withheldTime: the machine restarted before the time became known, so the reading has
	// none.
	withheldTime = "time"
	// undated: it waits, because the time in this boot may still become known.
	undated = "undated"
)

// retimeSlack is how far a kept reading's time may be from that of its uptime. Within it the
// reading keeps the time that it may have been published with, and so stays the same reading.
const retimeSlack = 10 * time.Second

// signer turns readings into messages: it dates records of the outbox, and signs for an enrolled
// gateway.
type signer struct {
	enrolment Enrolment // nil for an open gateway
	boot      clock.Boot
	clock     func() time.Time
}

func (s *signer) enrolmentID() string {
	if s.enrolment == nil {
		return ""
	}
	return s.enrolment.ID()
}

// dataLimit is how many bytes the data of a node's message may have beside its attributes.
func dataLimit(node, enrolment string) int {
	const (
		// https://cloud.google.com/pubsub/pricing#message_delivery_basic: 20 bytes for the
		// publish time, 16 for the usual message id.
		service = 20 + 16
		trace   = len("googclient_traceparent") + 55
		age     = len(wire.AgeAttribute) + 13 // digits of more than any outbox holds
	)
	limit := maxMessage - service - trace - age - len(wire.NodeIDAttribute) - len(node)
	if enrolment != "" {
		limit -= len(wire.GatewayIDAttribute) + len(enrolment) + len(wire.SignatureAttribute) + base64.StdEncoding.EncodedLen(ed25519.SignatureSize)
	}
	return limit
}

// message returns the message of a reading of the given age that was taken under an
// enrolment, empty for an open gateway.
func (s *signer) message(r reading.Reading, data []byte, age time.Duration, enrolment string) Message {
	attributes := map[string]string{}
	switch {
	case enrolment != "":
		attributes = s.enrolment.Sign(r.Time, wire.Age{Duration: age, Known: true}, data)
	case age >= time.Millisecond:
		attributes[wire.AgeAttribute] = strconv.FormatInt(age.Milliseconds(), 10)
	}
	attributes[wire.NodeIDAttribute] = r.NodeID
	return Message{NodeID: r.NodeID, Data: data, Attributes: attributes}
}

func (s *signer) record(t timedReading, earlier []outbox.Earlier) outbox.Record {
	return outbox.Record{Reading: t.Reading, Earlier: earlier, Enrolment: s.enrolmentID(), Boot: s.boot.ID, Uptime: t.uptime}
}

// mayPublish returns why a record may not be published, empty if it may.
func (s *signer) mayPublish(r outbox.Record) (reason string) {
	dated, known := reading.InCalendar(r.Reading.Time), true
	switch {
	case r.Enrolment == "": // the open channel, whoever publishes it
		dated = dated || r.Boot == s.boot.ID && reading.InCalendar(s.clock())
	case r.Enrolment != s.enrolmentID():
		return withheldEnrolment
	default:
		_, dated = s.enrolment.Time(r.Boot, r.Uptime)
		_, known = s.enrolment.Time(s.boot.ID, 0) // an age since another boot is counted by the time in this one
	}
	switch {
	case dated && known:
		return ""
	case dated || r.Boot == s.boot.ID:
		return undated
	default:
		return withheldTime
	}
}

func shift(m *outbox.Message, by time.Duration) {
	m.Reading.Time = m.Reading.Time.Add(by)
	earlier := make([]outbox.Earlier, len(m.Earlier))
	for i, e := range m.Earlier {
		e.Time = e.Time.Add(by)
		earlier[i] = e
	}
	m.Earlier = earlier
}

// retime dates a record by the uptime at which it was taken, if the gateway is enrolled or
// its clock was not set then, and returns how long the record has waited; 0 where that is
// not known.
func (s *signer) retime(m *outbox.Message) (age time.Duration) {
	if m.Enrolment != "" && m.Enrolment == s.enrolmentID() {
		at, ok := s.enrolment.Time(m.Boot, m.Uptime)
		if !ok {
			return 0
		}
		at = reading.TruncateTime(at)
		if by := at.Sub(m.Reading.Time); by.Abs() > retimeSlack {
			shift(m, by)
		}
	}
	if m.Boot == s.boot.ID {
		age = max(0, s.boot.Uptime()-m.Uptime)
		if now := s.clock(); !reading.InCalendar(m.Reading.Time) && reading.InCalendar(now) {
			shift(m, reading.TruncateTime(now.Add(-age)).Sub(m.Reading.Time))
		}
		return age
	}
	if m.Enrolment == "" {
		return 0
	}
	return max(0, s.clock().Sub(m.Reading.Time))
}
