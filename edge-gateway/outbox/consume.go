package outbox

import (
	"errors"
	"io/fs"
	"iter"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// Next returns up to n messages that are not consumed, oldest first. It does not remove
// them: [Outbox.Consume] does.
func (o *Outbox) Next(n int) ([]Message, error) {
	var found []Message
	for from := uint64(0); len(found) < n; {
		s, at, ok := o.waiting(from)
		if !ok {
			break
		}
		if err := o.examine(s); err != nil {
			return found, err
		}
		o.mu.Lock()
		durable := *s
		o.mu.Unlock()
		data, err := o.reader.read(o.options.disk, durable)
		switch {
		case errors.Is(err, fs.ErrNotExist): // somebody has removed it
			o.countDamage(s, at.offset)
		case err != nil:
			return found, err
		}
		for len(found) < n {
			m, end, damaged, ok := following(data, at.offset)
			if damaged {
				o.countDamage(s, at.offset)
			}
			at.offset = end
			if !ok {
				break
			}
			at.taken++
			m.end = at
			found = append(found, m)
		}
		if len(found) == 0 && !o.moved() { // the rest of the segment cannot be read
			o.mu.Lock()
			o.at = position{segment: durable.number, offset: durable.size, taken: durable.records}
			o.mu.Unlock()
		}
		from = durable.number + 1
	}
	return found, nil
}

// waiting returns the first segment from a number on that has waiting messages, and the
// position of the first of these.
func (o *Outbox) waiting(from uint64) (s *segment, at position, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.segments {
		if s.number < from || o.consumed(s) {
			continue
		}
		if o.at.segment == s.number {
			return s, o.at, true
		}
		return s, position{segment: s.number}, true
	}
	return nil, position{}, false
}

// countDamage counts a damaged place of a segment the first time that it is read.
func (o *Outbox) countDamage(s *segment, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.countDamage(offset) {
		o.damaged++
	}
}

// Consume removes the messages that Next returned, or the first of them. Once none waits, the
// error of the last append is past. After a power failure the messages of about a second may come
// again. It returns an error if the cursor cannot be written: the messages are consumed
// nevertheless, and the next call writes it.
func (o *Outbox) Consume(messages []Message) error {
	if o.appending == nil || o.moved() {
		return nil
	}
	o.mu.Lock()
	for _, m := range messages {
		o.at = m.end
		o.atTime = m.Appended
		o.held.add(m.Reading.NodeID, -1)
	}
	empty := o.pending() == 0
	if empty {
		o.err = nil // there is room again; other errors come back with the next append
		if !o.writing {
			o.held = holdings{}
		}
	}
	o.mu.Unlock()
	err := o.saveCursor(empty)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeConsumed(0)
	return err
}

// removeConsumed removes consumed segments that need not be retained any more, and further
// consumed ones until wanted bytes are free; the lock is held.
func (o *Outbox) removeConsumed(wanted int64) {
	if wanted > 0 && o.pending() == 0 && o.active != nil {
		_ = o.active.Close() // every record in it is synced and consumed
		o.active = nil
	}
	// A message is retained while its node may send the reading again, and while the next
	// message's window may reach back to it.
	now, next := o.options.Clock(), o.atTime
	if next.IsZero() || o.pending() == 0 {
		next = now
	}
	kept := o.segments[:0]
	for _, s := range o.segments {
		writing := o.active != nil && s.number == o.last
		retained := wanted <= 0 && (now.Sub(s.newest) < o.options.Retain || next.Sub(s.newest) < o.options.Retain)
		if writing || retained || !o.consumed(s) {
			kept = append(kept, s)
			continue
		}
		if err := o.options.disk.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			kept = append(kept, s)
			continue
		}
		wanted -= s.onDisk
	}
	clear(o.segments[len(kept):])
	o.segments = kept
}

// consumed reports whether every message of a segment is consumed; the lock is held.
func (o *Outbox) consumed(s *segment) bool {
	return s.number < o.at.segment || (s.number == o.at.segment && s.examined && o.at.offset >= s.size)
}

// Since yields the messages appended at or after a time that are still on disk,
// consumed or not, in their order. It leaves out those that cannot be read, and, as the clock
// may be behind the newest, those that were appended longer before it than they are retained.
func (o *Outbox) Since(start time.Time) iter.Seq[Message] {
	o.mu.Lock()
	for _, s := range slices.Backward(o.segments) {
		if reading.InCalendar(s.newest) { // else it was written without the time
			start = reading.Later(start, s.newest.Add(-o.options.Retain))
			break
		}
	}
	o.mu.Unlock()
	return o.between(start, position{segment: 1 << 63})
}

// Before yields the messages appended before one that Next has returned, within reach of
// its time.
func (o *Outbox) Before(m Message, reach time.Duration) iter.Seq[Message] {
	return o.between(m.Appended.Add(-reach), m.end)
}

// between yields the messages appended since a time and before a position.
func (o *Outbox) between(start time.Time, end position) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		o.mu.Lock()
		segments := make([]segment, 0, len(o.segments))
		for _, s := range o.segments {
			if !s.newest.Before(start) && s.number <= end.segment {
				segments = append(segments, *s)
			}
		}
		o.mu.Unlock()
		var r reader
		for _, s := range segments {
			data, err := r.read(o.options.disk, s)
			if err != nil {
				continue
			}
			for offset := int64(0); ; {
				m, next, _, ok := following(data, offset)
				if !ok || (s.number == end.segment && next >= end.offset) {
					break
				}
				offset = next
				if !m.Appended.Before(start) && !yield(m) {
					return
				}
			}
		}
	}
}
