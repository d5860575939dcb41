// Package artifact is the binary form of models and calibrations. It begins with a prefix
// that names kind and version, and ends with a SHA-256. Numbers are little-endian.
package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrUnusable marks bytes that are not a usable artifact: cut, changed, of another kind or
// version, or made from other features.
var ErrUnusable = errors.New("not a usable artifact")

// Seal puts content between its prefix and the checksum of both.
func Seal(prefix string, content []byte) []byte {
	b := append([]byte(prefix), content...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Open returns a reader of the content that [Seal] enclosed.
func Open(prefix string, sealed []byte) (*Reader, error) {
	if !bytes.HasPrefix(sealed, []byte(prefix)) || len(sealed) < len(prefix)+sha256.Size {
		return nil, fmt.Errorf("%w: it begins with %q, this program knows %q", ErrUnusable, sealed[:min(len(sealed), len(prefix))], prefix)
	}
	end := len(sealed) - sha256.Size
	if sum := sha256.Sum256(sealed[:end]); !bytes.Equal(sum[:], sealed[end:]) {
		return nil, fmt.Errorf("%w: damaged, its checksum does not fit", ErrUnusable)
	}
	return NewReader(sealed[len(prefix):end]), nil
}

// Append appends a value of fixed size to an artifact, see [binary.Write].
func Append(b []byte, value any) []byte {
	b, err := binary.Append(b, binary.LittleEndian, value)
	if err != nil {
		panic(err) // only of a type without a fixed size
	}
	return b
}

// Reader reads numbers until one is missing or refused. From then on it reads zeros.
type Reader struct {
	rest []byte
	err  error
}

// NewReader reads content.
func NewReader(content []byte) *Reader { return &Reader{rest: content} }

// Fail marks the content as unusable.
func (r *Reader) Fail(format string, arguments ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrUnusable, fmt.Sprintf(format, arguments...))
	}
}

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// End is the first error, or an error if bytes are left over.
func (r *Reader) End() error {
	if len(r.rest) > 0 {
		r.Fail("%d bytes too many", len(r.rest))
	}
	return r.err
}

// Len is the number of bytes left.
func (r *Reader) Len() int { return len(r.rest) }

// Bytes returns the next n bytes, nil if there are fewer.
func (r *Reader) Bytes(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.rest) {
		r.Fail("cut short")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// Read reads a value that [Append] wrote.
func Read[T any](r *Reader) (value T) {
	if b := r.Bytes(binary.Size(value)); b != nil {
		_, _ = binary.Decode(b, binary.LittleEndian, &value)
	}
	return value
}

// Count reads an unsigned varint of at most limit.
func (r *Reader) Count(limit int) int {
	n, size := binary.Uvarint(r.rest)
	if r.err != nil || size <= 0 || n > uint64(max(limit, 0)) {
		r.Fail("a count beyond %d, or cut short", limit)
		return 0
	}
	r.rest = r.rest[size:]
	return int(n) //nolint:gosec // at most limit
}
