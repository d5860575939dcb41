package outbox

import (
	"iter"
	"time"
)

// Next returns up to n messages that are not consumed, oldest first; none means
// that there are none. It does not take them out: [Outbox.Consume] does.
func (o *Outbox) Next(n int) ([]Message, error) {
	var found []Message
	var reached position
	at := o.position()
	for {
		s, ok := o.segmentAt(at.segment)
		if !ok {
			break
		}
		if s.number != at.segment {
			at = position{segment: s.number}
		}
		data, err := o.reader.read(o.options.disk, s)
		if err != nil {
			return found, err
		}
		for len(found) < n {
			m, end, damaged, ok := following(data, at.offset)
			if damaged {
				o.countDamage(at)
			}
			at.offset = end
			if !ok {
				break
			}
			at.taken++
			m.end = at
			found = append(found, m)
		}
		if len(found) == n {
			return found, nil
		}
		reached = position{segment: s.number, offset: s.size, taken: s.records}
		at = position{segment: s.number + 1}
	}
	if len(found) == 0 {
		o.advance(reached)
	}
	return found, nil
}

// advance moves the read position forward; records before it are never read again.
func (o *Outbox) advance(to position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if to.segment > o.at.segment || (to.segment == o.at.segment && to.offset >= o.at.offset) {
		o.at = to
	}
}

func (o *Outbox) position() position {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at
}

// segmentAt returns the segment of a number, or the first one after it.
func (o *Outbox) segmentAt(number uint64) (segment, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.segments {
		if s.number >= number {
			return *s, true
		}
	}
	return segment{}, false
}

// countDamage counts a damaged place, the first time that it is met.
func (o *Outbox) countDamage(at position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.segments {
		if s.number == at.segment && s.countDamage(at.offset) {
			o.damaged++
		}
	}
}

// Consume takes out what Next returned, or the first part of it. The messages
// may come again after a power failure, for about a second's worth of them.
func (o *Outbox) Consume(messages []Message) error {
	if len(messages) == 0 {
		return nil
	}
	o.mu.Lock()
	o.at = messages[len(messages)-1].end
	empty := o.pending() == 0
	if empty {
		o.fault = nil // there is room again; the next append tells what else is wrong
	}
	due := empty || o.options.Clock().Sub(o.cursorAt).Abs() >= cursorEvery
	o.mu.Unlock()
	if !due {
		return nil
	}
	err := o.writeCursor()
	o.removeConsumed(0)
	return err
}

// removeConsumed removes segments that are consumed and need not be retained any more,
// and further consumed ones until so many bytes are free.
func (o *Outbox) removeConsumed(wanted int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if wanted > 0 && o.pending() == 0 && o.active != nil {
		_ = o.active.Close() // every record in it is synced and consumed
		o.active = nil
	}
	now := o.options.Clock()
	kept := o.segments[:0]
	for _, s := range o.segments {
		writing := o.active != nil && s.number == o.last
		retained := now.Sub(s.newest) < o.options.Retain && wanted <= 0
		if writing || retained || !o.consumed(s) || o.options.disk.Remove(s.path) != nil {
			kept = append(kept, s)
			continue
		}
		wanted -= s.size + s.garbage
	}
	clear(o.segments[len(kept):])
	o.segments = kept
}

// consumed says whether every message of a segment is; the lock is held.
func (o *Outbox) consumed(s *segment) bool {
	return s.number < o.at.segment || (s.number == o.at.segment && o.at.offset >= s.size)
}

// Since yields the messages appended at or after a time that are still on disk,
// consumed or not, in their order. What cannot be read is left out.
func (o *Outbox) Since(start time.Time) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		o.mu.Lock()
		segments := make([]segment, 0, len(o.segments))
		for _, s := range o.segments {
			segments = append(segments, *s)
		}
		o.mu.Unlock()
		var r reader
		for _, s := range segments {
			if s.newest.Before(start) {
				continue
			}
			data, err := r.read(o.options.disk, s)
			if err != nil {
				continue
			}
			for offset := int64(0); ; {
				m, end, _, ok := following(data, offset)
				if !ok {
					break
				}
				offset = end
				if !m.Appended.Before(start) && !yield(m) {
					return
				}
			}
		}
	}
}
