package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/klauspost/compress/zstd"
)

// A compressed segment is what a plain one held, in blocks, so that a damaged place
// costs a block. Behind the blocks stands an index, by which an outbox is opened
// without reading all of it, and behind that a trailer. Each block is
//
//	plain length       4 bytes
//	compressed length  4 bytes
//	checksum           4 bytes  CRC-32C of both lengths and the compressed bytes
//	compressed bytes
//
// The index is of the same form; the trailer is the length of the index's block, the
// length of the plain content, 4 bytes each, and a magic number.
const (
	plainBlock  = 64 << 10
	blockHeader = 12
	trailerSize = 16
	trailer     = "\xc0\x1d\xa3\xfeindx"
	// maxIndex bounds the plain index: the segment's records are of that many nodes
	// at most.
	maxIndex = 4 << 20
)

// codec compresses and expands blocks. Its methods may be called concurrently.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// newCodec returns a codec for a small machine: about 1 MB of memory.
func newCodec() codec {
	// The options are constants that the library takes.
	encoder, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(plainBlock), zstd.WithEncoderCRC(false))
	decoder, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxIndex))
	return codec{encoder: encoder, decoder: decoder}
}

func (c codec) close() {
	_ = c.encoder.Close()
	c.decoder.Close()
}

func (c codec) appendBlock(to, plain []byte) []byte {
	start := len(to)
	to = append(to, make([]byte, blockHeader)...)
	to = c.encoder.EncodeAll(plain, to)
	header, body := to[start:start+blockHeader], to[start+blockHeader:]
	binary.LittleEndian.PutUint32(header, uint32(len(plain)))    //nolint:gosec // at most plainBlock or the index
	binary.LittleEndian.PutUint32(header[4:], uint32(len(body))) //nolint:gosec // less than a segment
	binary.LittleEndian.PutUint32(header[8:], blockChecksum(header, body))
	return to
}

func blockChecksum(header, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(header[:8], table), table, body)
}

// block expands the block at the front of data. length is what its header says of the
// plain bytes and end is the block's length, where the header can be believed.
func (c codec) block(data []byte) (plain []byte, length, end int, ok bool) {
	if len(data) < blockHeader {
		return nil, 0, 0, false
	}
	wanted, taken := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
	if wanted > maxIndex || taken > uint32(len(data)-blockHeader) { //nolint:gosec // no file of ours has 4 GiB
		return nil, 0, 0, false
	}
	length, end = int(wanted), blockHeader+int(taken)
	if binary.LittleEndian.Uint32(data[8:]) != blockChecksum(data, data[blockHeader:end]) {
		return nil, length, end, false
	}
	plain, err := c.decoder.DecodeAll(data[blockHeader:end], make([]byte, 0, length))
	return plain, length, end, err == nil && len(plain) == length
}

// compress returns the content of the compressed file of a segment.
func (c codec) compress(data []byte, s *segment) []byte {
	packed := make([]byte, 0, len(data)/2)
	for start := 0; start < len(data); start += plainBlock {
		packed = c.appendBlock(packed, data[start:min(start+plainBlock, len(data))])
	}
	before := len(packed)
	packed = c.appendBlock(packed, encodeIndex(s))
	packed = binary.LittleEndian.AppendUint32(packed, uint32(len(packed)-before)) //nolint:gosec // less than a segment
	packed = binary.LittleEndian.AppendUint32(packed, uint32(len(data)))          //nolint:gosec // less than a segment
	return append(packed, trailer...)
}

// decompress reads the plain content of a compressed segment, up to a size, or all of
// it for a size of 0. A damaged block comes out as zeros; behind one whose length
// cannot be believed all the rest does.
func (c codec) decompress(f file, size int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read segment: %w", err)
	}
	packed, err := load(f, nil, 0, info.Size())
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, size)
	for size == 0 || int64(len(data)) < size {
		plain, length, end, ok := c.block(packed)
		if end == 0 || length == 0 {
			break
		}
		if !ok {
			plain = make([]byte, length)
		}
		data = append(data, plain...)
		packed = packed[end:]
	}
	if missing := size - int64(len(data)); missing > 0 {
		data = append(data, make([]byte, missing)...)
	}
	return data, nil
}

// encodeIndex writes what is known of a segment, in varints.
func encodeIndex(s *segment) []byte {
	index := binary.AppendVarint(nil, s.newest.UnixMicro())
	index = binary.AppendUvarint(index, uint64(len(s.nodes)))
	for node, records := range s.nodes {
		index = binary.AppendUvarint(appendText(index, node), uint64(records)) //nolint:gosec // a count
	}
	return index
}

var errNoIndex = errors.New("segment without an intact index")

// readIndex fills a segment by the index of its file. The error is errNoIndex where
// only reading all of the file can tell.
func (c codec) readIndex(f file, s *segment) error {
	onDisk := s.onDisk
	end := make([]byte, trailerSize)
	if onDisk < trailerSize {
		return errNoIndex
	}
	if _, err := f.ReadAt(end, onDisk-trailerSize); err != nil || string(end[8:]) != trailer {
		return errNoIndex
	}
	length, size := int64(binary.LittleEndian.Uint32(end)), int64(binary.LittleEndian.Uint32(end[4:]))
	if length > onDisk-trailerSize || length > maxIndex || size == 0 {
		return errNoIndex
	}
	packed := make([]byte, length)
	if _, err := f.ReadAt(packed, onDisk-trailerSize-length); err != nil {
		return errNoIndex
	}
	plain, _, _, ok := c.block(packed)
	if !ok {
		return errNoIndex
	}
	b := bodyReader{rest: plain}
	s.newest = time.UnixMicro(b.varint()).UTC()
	count := b.uvarint()
	s.nodes = make(map[string]int, min(count, uint64(len(plain))))
	for range count {
		node, records := b.text(), int(b.uvarint()) //nolint:gosec // a count
		if b.fault {
			return errNoIndex
		}
		s.nodes[node] += records
		s.records += records
	}
	s.size, s.examined = size, true
	return nil
}
