package outbox

import (
	"errors"
	"fmt"
	"slices"
)

// runCompressor examines what Open has left and compresses full segments, in the
// background of appends, until the outbox is closed.
func (o *Outbox) runCompressor() {
	for range o.compressWake {
		o.compressSegments()
	}
}

func (o *Outbox) wakeCompressor() {
	select {
	case o.compressWake <- struct{}{}:
	default:
	}
}

// compressSegments examines and compresses every segment that is written to no more.
// One that cannot be compressed now, for want of space or on a dead card, stays plain.
func (o *Outbox) compressSegments() {
	o.compressing.Lock()
	defer o.compressing.Unlock()
	for {
		o.mu.Lock()
		place := slices.IndexFunc(o.segments, func(s *segment) bool {
			writing := o.active != nil && s.number == o.last
			return !writing && !s.tried && !o.consumed(s) && (!s.examined || (!s.compressed && format(s.number) == 1))
		})
		if place < 0 || o.closed {
			o.mu.Unlock()
			return
		}
		s := o.segments[place]
		s.tried = true
		o.mu.Unlock()
		if o.examined(s) == nil && !s.compressed && format(s.number) == 1 && s.records > 0 {
			_ = o.compressSegment(s)
		}
	}
}

// compressSegment replaces a plain segment by a compressed one. A power failure leaves
// the one, or both, or with them a temporary file that the next Open removes.
func (o *Outbox) compressSegment(s *segment) error {
	var r reader
	o.mu.Lock()
	plain := *s
	o.mu.Unlock()
	data, err := r.read(o.options.disk, o.codec, plain)
	if err != nil {
		return err
	}
	packed := o.codec.compress(data, &plain)
	if int64(len(packed)) >= plain.onDisk {
		return nil
	}
	path := segmentPath(o.dir, s.number, suffixCompressed)
	if err := o.writeFile(path, packed); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.segments, s) { // consumed and removed meanwhile
		return o.options.disk.Remove(path)
	}
	s.path, s.compressed, s.onDisk = path, true, int64(len(packed))
	s.forgetNodes()
	return o.options.disk.Remove(plain.path) // else the next Open removes it
}

// writeFile makes a file that is there as a whole or not at all.
func (o *Outbox) writeFile(path string, content []byte) error {
	d := o.options.disk
	temporary := path + suffixTemporary
	_ = d.Remove(temporary)
	f, err := d.Create(temporary)
	if err != nil {
		return fmt.Errorf("compress segment: %w", err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.Rename(temporary, path)
	}
	if err == nil {
		err = d.SyncFolder(o.dir)
	}
	if err != nil {
		_ = d.Remove(temporary)
		return fmt.Errorf("compress segment: %w", err)
	}
	return nil
}
