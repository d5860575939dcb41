package outbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"coldaisle.dev/shared/reading"
)

// Record is one reading as the outbox stores it.
type Record struct {
	Reading reading.Reading
	// Earlier are the readings of the node in the hour before this one that were published
	// and so are not in the outbox, oldest first. The reading's window is made of them and
	// of the node's records.
	Earlier []Earlier
	// Enrolment is the id of the gateway's enrolment under which the reading was
	// taken, empty for none: the record is never signed under another.
	Enrolment string
	// Boot is the boot of the machine that Uptime belongs to; zero if unknown.
	Boot [16]byte
	// Uptime is the machine's time since that boot, suspension included, at the time of
	// the reading. During the same boot it gives the reading's age, however the clock was
	// set.
	Uptime time.Duration
}

// Earlier is a reading of a window.
type Earlier struct {
	Time time.Time // in microseconds
	// In hundredths of a °C and of a % relative humidity; math.MinInt16 if not measured.
	Temperature, Humidity int16
}

// Message is one record of an outbox.
type Message struct {
	Record

	Appended time.Time

	end position // where the next message begins
}

// A record begins with a magic number, by which a reader finds the next record after a
// damaged place, and a header:
//
//	magic    4 bytes
//	length   4 bytes  of the body
//	appended 8 bytes  microseconds since 1970
//	checksum 4 bytes  CRC-32C of length, appended and body
//
// The body is what appendBody writes.
const headerSize = 20

// magic is not valid UTF-8, so that it does not occur within text.
const magic = "\xc0\x1d\xa2\xfe"

// checksum covers a record from its length on, except the checksum itself.
func checksum(header, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(header[4:16], table), table, body)
}

func appendRecord(to []byte, r Record, appended time.Time) []byte {
	start := len(to)
	to = append(to, magic...)
	to = append(to, make([]byte, headerSize-len(magic))...)
	to = appendBody(to, r)
	header, body := to[start:start+headerSize], to[start+headerSize:]
	binary.LittleEndian.PutUint32(header[4:], uint32(len(body))) //nolint:gosec // of a valid reading
	binary.LittleEndian.PutUint64(header[8:], uint64(appended.UnixMicro()))
	binary.LittleEndian.PutUint32(header[16:], checksum(header, body))
	return to
}

// appendedAt is the time in an encoded record's header.
func appendedAt(record []byte) time.Time {
	return time.UnixMicro(int64(binary.LittleEndian.Uint64(record[8:]))).UTC() //nolint:gosec // as it was written
}

// appendBody writes a record: texts by their lengths, numbers as varints.
func appendBody(to []byte, r Record) []byte {
	to = appendText(to, r.Reading.NodeID)
	to = appendText(to, r.Reading.MessageID)
	at := r.Reading.Time.UnixMicro()
	to = binary.AppendVarint(to, at)
	to = appendNumber(to, r.Reading.Temperature)
	to = appendNumber(to, r.Reading.Humidity)
	to = appendText(to, r.Enrolment)
	to = append(to, r.Boot[:]...)
	// The difference is about the same in all records of a boot.
	to = binary.AppendVarint(to, at-r.Uptime.Microseconds())
	to = binary.AppendUvarint(to, uint64(len(r.Earlier)))
	for _, e := range r.Earlier {
		to = binary.AppendVarint(to, at-e.Time.UnixMicro())
		to = binary.AppendVarint(to, int64(e.Temperature))
		to = binary.AppendVarint(to, int64(e.Humidity))
	}
	return to
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// appendNumber writes a number with at most two decimals as twice its hundredths, and any
// other as 1 followed by its bits.
func appendNumber(to []byte, value float64) []byte {
	hundredths := math.RoundToEven(value * 100)
	if math.Abs(hundredths) < 1e9 && hundredths/100 == value && math.Signbit(hundredths) == (hundredths < 0) {
		return binary.AppendVarint(to, 2*int64(hundredths))
	}
	return binary.LittleEndian.AppendUint64(binary.AppendVarint(to, 1), math.Float64bits(value))
}

// bodyReader reads the parts of a body from its front. After the first error all are zero.
type bodyReader struct {
	rest   []byte
	failed bool
}

func (b *bodyReader) bytes(n uint64) []byte {
	if b.failed || n > uint64(len(b.rest)) {
		b.failed = true
		return nil
	}
	taken := b.rest[:n]
	b.rest = b.rest[n:]
	return taken
}

func (b *bodyReader) uvarint() uint64 {
	value, n := binary.Uvarint(b.rest)
	b.bytes(uint64(max(n, 0)))
	b.failed = b.failed || n <= 0
	return value
}

func (b *bodyReader) varint() int64 {
	value, n := binary.Varint(b.rest)
	b.bytes(uint64(max(n, 0)))
	b.failed = b.failed || n <= 0
	return value
}

func (b *bodyReader) text() string { return string(b.bytes(b.uvarint())) }

func (b *bodyReader) number() float64 {
	value := b.varint()
	if value&1 == 0 {
		return float64(value/2) / 100
	}
	bits := b.bytes(8)
	if b.failed {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(bits))
}

// validate checks a reading except its time: until the machine's clock is set, the uptime
// stands in for it.
func validate(r reading.Reading) error {
	return errors.Join(
		reading.ValidateNodeID(r.NodeID), reading.ValidateMessageID(r.MessageID), reading.ValidateValues(r.Temperature, r.Humidity),
	)
}

// decodeBody decodes a body; ok is false for bytes that no gateway writes.
func decodeBody(body []byte) (r Record, ok bool) {
	b := bodyReader{rest: body}
	r.Reading.NodeID, r.Reading.MessageID = b.text(), b.text()
	at := b.varint()
	r.Reading.Time = time.UnixMicro(at).UTC()
	r.Reading.Temperature, r.Reading.Humidity = b.number(), b.number()
	r.Enrolment = b.text()
	copy(r.Boot[:], b.bytes(uint64(len(r.Boot))))
	r.Uptime = time.Duration(at-b.varint()) * time.Microsecond
	count := b.uvarint()
	if b.failed || count > reading.MaxWindow+1 {
		return Record{}, false
	}
	for range count {
		e := Earlier{Time: time.UnixMicro(at - b.varint()).UTC()}
		e.Temperature, e.Humidity = int16(b.varint()), int16(b.varint()) //nolint:gosec // as it was written; the checksum holds
		r.Earlier = append(r.Earlier, e)
	}
	return r, !b.failed && len(b.rest) == 0 && validate(r.Reading) == nil
}

// record returns the record that begins at an offset, if its checksum is right. end is
// where the next one begins; ok is false if there is no such record.
func record(data []byte, offset int64) (m Message, end int64, ok bool) {
	rest := data[offset:]
	if len(rest) < headerSize || string(rest[:4]) != magic {
		return Message{}, 0, false
	}
	header := rest[:headerSize]
	claimed := binary.LittleEndian.Uint32(header[4:]) // a garbled one may be more than an int holds on a 32-bit machine
	if claimed > maxBody || int(claimed) > len(rest)-headerSize {
		return Message{}, 0, false
	}
	body := rest[headerSize : headerSize+int(claimed)]
	if binary.LittleEndian.Uint32(header[16:]) != checksum(header, body) {
		return Message{}, 0, false
	}
	m.Appended = appendedAt(header)
	m.Record, ok = decodeBody(body)
	return m, offset + headerSize + int64(claimed), ok
}

// following finds the first intact record at or after an offset. damaged says that it
// skipped something; ok is false at the end of the data.
func following(data []byte, offset int64) (m Message, end int64, damaged, ok bool) {
	for offset < int64(len(data)) {
		if m, end, ok = record(data, offset); ok {
			return m, end, damaged, true
		}
		damaged = true
		next := bytes.Index(data[offset+1:], []byte(magic))
		if next < 0 {
			break
		}
		offset += int64(1 + next)
	}
	return Message{}, int64(len(data)), damaged, false
}
