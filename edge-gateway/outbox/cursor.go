package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// cursor is the file that holds the position up to which messages are consumed: one
// small write in place, so that it needs no space on a full disk. Segment and offset
// take 8 bytes each, the CRC-32C of both 4.
type cursor struct {
	at      time.Time // of the last attempt to write it
	written position  // by the last attempt that succeeded
}

const cursorSize = 20

func cursorPath(dir string) string { return filepath.Join(dir, "cursor") }

// saveCursor writes the cursor, unless the file has it already, once within [cursorEvery] or if it
// is due. A drain consumes, at least nothing, after each attempt: what is left out or fails is
// written then.
func (o *Outbox) saveCursor(due bool) error {
	now := o.options.Clock()
	o.mu.Lock()
	at := o.at
	o.mu.Unlock()
	if at == o.cursor.written || !due && now.Sub(o.cursor.at).Abs() < cursorEvery {
		return nil
	}
	o.cursor.at = now
	content := binary.LittleEndian.AppendUint64(make([]byte, 0, cursorSize), at.segment)
	content = binary.LittleEndian.AppendUint64(content, uint64(at.offset)) //nolint:gosec // never negative
	content = binary.LittleEndian.AppendUint32(content, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
	f, err := o.options.disk.Open(cursorPath(o.dir), toEdit)
	if err != nil {
		return fmt.Errorf("write outbox cursor: %w", err)
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write outbox cursor: %w", err)
	}
	o.cursor.written = at
	return nil
}

// loadCursor reads the position. Without an intact cursor it is the beginning.
func (o *Outbox) loadCursor() error {
	f, err := o.options.disk.Open(cursorPath(o.dir), toRead)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, cursorSize)
	n, _ := f.ReadAt(content, 0)
	if n < cursorSize || crc32.Checksum(content[:16], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(content[16:]) {
		return nil
	}
	o.at = position{
		segment: binary.LittleEndian.Uint64(content),
		offset:  int64(binary.LittleEndian.Uint64(content[8:])), //nolint:gosec // as it was written
	}
	o.cursor.written = o.at
	return nil
}
