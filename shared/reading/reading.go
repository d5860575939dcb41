// Package reading is the domain of a single measurement of a sensor node: its
// values, which of them are valid, and when two readings are the same.
//
// Everything else in Coldaisle carries a [Reading] from the gateway to storage.
// The package imports no technology: the codecs of topics, tables and HTTP bodies
// are in other packages and convert from and to the types here.
package reading

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The range of the standard node hardware, inclusive at both ends. Its precision is 0.1.
const (
	MinTemperature = -40.0 // °C
	MaxTemperature = 125.0 // °C
	MinHumidity    = 0.0   // % relative humidity
	MaxHumidity    = 100.0 // % relative humidity
)

// Lengths in bytes; both kinds of identifier are ASCII.
const (
	MaxNodeIDLength    = 50
	MaxMessageIDLength = 64
)

// ProbeNodeID is the node of the probe's readings: each minute they measure lateness, they show
// an idle gateway whether Pub/Sub takes a reading, and a drill begins with one. No sensor has it,
// and they are not stored.
const ProbeNodeID = "coldaisle.probe"

// The errors that [Reading.Validate] reports, each wrapped with the value.
var (
	ErrNodeID      = errors.New("node_id must be 1 to 50 letters, digits, '.', '_', ':' or '-', and not '.' or '..'")
	ErrReserved    = errors.New("node_id must not be " + ProbeNodeID + ", which is reserved")
	ErrMessageID   = errors.New("message id must be 1 to 64 printable characters")
	ErrTemperature = errors.New("temperature must be between -40 and 125 degrees Celsius")
	ErrHumidity    = errors.New("humidity must be between 0 and 100 percent")
	ErrNoValue     = errors.New("temperature or humidity is required")
	ErrTime        = errors.New("timestamp must lie between the years 2000 and 2100")
)

// Precision is the resolution of every timestamp in the system: what PostgreSQL
// and BigQuery both keep. A finer time would not survive storage, and two
// copies of one reading would then differ.
const Precision = time.Microsecond

// Channel says through whose gateways a reading came: the id of the customer whose
// enrolled gateway signed the message, or [Open]. The same node id in two channels
// is two nodes.
type Channel int64

// Open is the channel of gateways that are not enrolled.
const Open Channel = 0

// Node names a node within its channel.
type Node struct {
	Channel Channel
	ID      string
}

// Span is a part of a channel in time: from ≤ t < until. A zero From has no
// beginning, a zero Until no end.
type Span struct {
	Channel     Channel
	From, Until time.Time
}

// Contains reports whether a time lies in the span.
func (s Span) Contains(t time.Time) bool {
	return !t.Before(s.From) && (s.Until.IsZero() || t.Before(s.Until))
}

// Reading is one measurement of one node. If a node measures only one quantity, the other is
// NaN, see [Has].
type Reading struct {
	Channel     Channel
	NodeID      string    // the sensor's public identifier
	MessageID   string    // the node's own id of the message, unique only together with the node and the time
	Time        time.Time // UTC, at [Precision]: the gateway's clock at receipt, see [Dated]
	Temperature float64   // °C, dry bulb; NaN if not measured
	Humidity    float64   // % relative humidity; NaN if not measured

	// Whether a [Correction] applied, and the measured values then, see [Reading.Uncorrected].
	corrected                             bool
	measuredTemperature, measuredHumidity float64
}

// Missing stands for a value that was not measured: every comparison with it is false.
func Missing() float64 { return math.NaN() }

// Has reports whether a value was measured.
func Has(value float64) bool { return !math.IsNaN(value) }

// Pointer returns a value for codecs and stores: nil if it is missing.
func Pointer(value float64) *float64 {
	if !Has(value) {
		return nil
	}
	return &value
}

// Value is the inverse of [Pointer].
func Value(p *float64) float64 {
	if p == nil {
		return Missing()
	}
	return *p
}

// Equal reports whether two readings are the same in all fields, missing values included.
func (r Reading) Equal(other Reading) bool {
	same := func(a, b float64) bool { return a == b || !Has(a) && !Has(b) }
	return r.Channel == other.Channel && r.NodeID == other.NodeID && r.MessageID == other.MessageID && r.Time.Equal(other.Time) &&
		same(r.Temperature, other.Temperature) && same(r.Humidity, other.Humidity) && r.corrected == other.corrected &&
		same(r.measuredTemperature, other.measuredTemperature) && same(r.measuredHumidity, other.measuredHumidity)
}

// MaxAhead is how far a reading's time may be ahead of the clock that it is compared with:
// clocks synchronised by NTP differ by less.
const MaxAhead = 2 * time.Minute

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Dated returns the time of a reading. It is the gateway's timestamp, however old,
// because a gateway delivers the readings of its outbox late. It is the publish
// time of the message when there is no timestamp, or one more than [MaxAhead] after
// the publish time: a time in the future would hide all newer readings of the node.
func Dated(stamped, published time.Time) time.Time {
	if stamped.IsZero() || stamped.After(published.Add(MaxAhead)) {
		return TruncateTime(published)
	}
	return TruncateTime(stamped)
}

// ErrStale marks a signed reading that was not published at the time that it states: a
// recorded message that is published again looks like that, and so does one of a gateway
// with a wrong clock.
var ErrStale = errors.New("a signed reading must be published within 2 minutes of its timestamp and age")

// SignedTime returns the time of a reading whose gateway signed its timestamp and age. It is
// never changed: if timestamp plus age is more than [MaxAhead] from the publish time, the
// error is [ErrStale].
func SignedTime(stamped time.Time, age time.Duration, published time.Time) (time.Time, error) {
	if off := published.Sub(stamped.Add(age)); stamped.IsZero() || off > MaxAhead || off < -MaxAhead {
		return time.Time{}, fmt.Errorf("%w: published at %v, taken at %v, waited %v", ErrStale, published, stamped, age)
	}
	return TruncateTime(stamped), nil
}

// Identity identifies a reading. Message ids are four random bytes on some nodes and collide
// within weeks, so the time is part of it.
type Identity struct {
	Channel   Channel
	NodeID    string
	MessageID string
	Time      time.Time
}

// Identity returns the reading's identity, comparable with ==.
func (r Reading) Identity() Identity {
	return Identity{Channel: r.Channel, NodeID: r.NodeID, MessageID: r.MessageID, Time: TruncateTime(r.Time)}
}

// TruncateTime returns a time in the form that the whole system stores: UTC, at
// [Precision], without a monotonic part.
func TruncateTime(t time.Time) time.Time {
	return t.UTC().Truncate(Precision)
}

// Node returns the node that the reading is of.
func (r Reading) Node() Node { return Node{Channel: r.Channel, ID: r.NodeID} }

// Validate reports every field that is out of its range, joined into one error;
// nil means that the reading may be stored.
func (r Reading) Validate() error {
	return errors.Join(
		ValidateNodeID(r.NodeID),
		ValidateMessageID(r.MessageID),
		validateTime(r.Time),
		ValidateValues(r.Temperature, r.Humidity),
	)
}

// ValidateValues checks the two values of a reading, of which one may be missing.
func ValidateValues(temperature, humidity float64) error {
	switch {
	case Has(temperature) && Has(humidity):
		return ValidateMeasurement(temperature, humidity)
	case Has(temperature):
		return validateRange(temperature, MinTemperature, MaxTemperature, ErrTemperature)
	case Has(humidity):
		return validateRange(humidity, MinHumidity, MaxHumidity, ErrHumidity)
	}
	return ErrNoValue
}

// ValidateMeasurement checks two values, neither of which may be missing: °C and %
// relative humidity, finite and within the hardware's range.
func ValidateMeasurement(temperature, humidity float64) error {
	return errors.Join(
		validateRange(temperature, MinTemperature, MaxTemperature, ErrTemperature),
		validateRange(humidity, MinHumidity, MaxHumidity, ErrHumidity),
	)
}

// ValidateNodeID reports whether an identifier may name a node: the same rule
// at the gateway and in the API, so that every node that can report can also be
// registered as a sensor.
func ValidateNodeID(id string) error {
	if id == "" || len(id) > MaxNodeIDLength {
		return fmt.Errorf("%w: length %d", ErrNodeID, len(id))
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-"
	if id == "." || id == ".." || strings.Trim(id, allowed) != "" { // a URL's path cannot name dots (RFC 3986 §5.2.4)
		return fmt.Errorf("%w: got %q", ErrNodeID, id)
	}
	return nil
}

// ValidateSensorID is [ValidateNodeID] for the id of a real sensor, which is not reserved.
func ValidateSensorID(id string) error {
	if id == ProbeNodeID {
		return ErrReserved
	}
	return ValidateNodeID(id)
}

// ValidateMessageID reports whether an identifier may name a message: 1 to 64
// printable ASCII characters.
func ValidateMessageID(id string) error {
	if id == "" || len(id) > MaxMessageIDLength {
		return fmt.Errorf("%w: length %d", ErrMessageID, len(id))
	}
	if strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c > '~' }) {
		return fmt.Errorf("%w: got %q", ErrMessageID, id)
	}
	return nil
}

// Calendar is the span of times that a reading may have, from 2000 until 2100.
func Calendar() Span {
	return Span{From: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// InCalendar reports whether a time lies in the [Calendar].
func InCalendar(t time.Time) bool {
	return Calendar().Contains(t)
}

// Beyond formats a value and the limit that it exceeds with one decimal, the precision of the
// hardware, or with more if the two would look equal.
func Beyond(value, limit float64) (valueText, limitText string) {
	const maxDecimals = 6 // ends the search for a difference
	for decimals := 1; ; decimals++ {
		valueText, limitText = Decimal(value, decimals), Decimal(limit, decimals)
		if valueText != limitText || decimals == maxDecimals {
			return valueText, limitText
		}
	}
}

// Decimal formats a value as browsers do: a half is rounded away from zero, as fmt does not, and
// nothing is "-0.0".
func Decimal(value float64, decimals int) string {
	scale := math.Pow10(decimals)
	return strconv.FormatFloat(math.Round(value*scale)/scale+0, 'f', decimals, 64)
}

// validateTime checks that a time is one that every store can partition by day. Nodes' clocks
// are never used, so another time is the sender's error.
func validateTime(t time.Time) error {
	if !InCalendar(t) {
		return fmt.Errorf("%w: got year %d", ErrTime, t.UTC().Year())
	}
	return nil
}

func validateRange(value, lowest, highest float64, sentinel error) error {
	if math.IsNaN(value) || value < lowest || value > highest {
		return fmt.Errorf("%w: got %g", sentinel, value)
	}
	return nil
}
