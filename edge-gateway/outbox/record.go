package outbox

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"
)

// A record begins with a mark by which a reader finds the next one behind a
// damaged place, and a header:
//
//	mark     4 bytes
//	length   4 bytes  of the message
//	appended 8 bytes  microseconds since 1970
//	checksum 4 bytes  CRC-32C of length, appended and message
const headerSize = 20

// magic is no valid UTF-8, so that it does not occur within a JSON message.
const magic = "\xc0\x1d\xa1\xfe"

// Message is one message of an outbox.
type Message struct {
	Data     []byte
	Appended time.Time

	end position // of the message after it
}

// checksum covers a record from its length on, but for the checksum itself.
func checksum(header, message []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(header[4:16], table), table, message)
}

func appendRecord(to, message []byte, appended time.Time) []byte {
	start := len(to)
	to = append(to, magic...)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(message))) //nolint:gosec // Append has checked the length
	to = binary.LittleEndian.AppendUint64(to, uint64(appended.UnixMicro()))
	to = binary.LittleEndian.AppendUint32(to, checksum(to[start:], message))
	return append(to, message...)
}

// record reads the record that begins at an offset. end is where the next one
// begins; ok is false when there is no intact record there.
func record(data []byte, offset int64) (m Message, end int64, ok bool) {
	rest := data[offset:]
	if len(rest) < headerSize || string(rest[:4]) != magic {
		return Message{}, 0, false
	}
	header := rest[:headerSize]
	claimed := binary.LittleEndian.Uint32(header[4:]) // of a garbled one, more than an int holds on a 32-bit machine
	if claimed > MaxMessage || int(claimed) > len(rest)-headerSize {
		return Message{}, 0, false
	}
	length := int(claimed)
	message := rest[headerSize : headerSize+length : headerSize+length]
	if binary.LittleEndian.Uint32(header[16:]) != checksum(header, message) {
		return Message{}, 0, false
	}
	appended := time.UnixMicro(int64(binary.LittleEndian.Uint64(header[8:]))).UTC() //nolint:gosec // as it was written
	return Message{Data: message, Appended: appended}, offset + int64(headerSize+length), true
}

// following finds the first intact record at or behind an offset. damaged says
// that something had to be stepped over; ok is false at the end of the data.
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
