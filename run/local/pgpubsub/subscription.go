package pgpubsub

import (
	"container/heap"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

const (
	// A subscription buffers so many messages that nobody has pulled yet, and so
	// many bytes of them. Subscriptions of one topic share their content.
	maxBuffered      = 4096
	maxBufferedBytes = 16 << 20
	// againRows is how many messages are read at once that are delivered again.
	againRows = 100
)

// delivery is a message on its way to one subscription.
type delivery struct {
	id      int64
	waiting []int32                 // the subscriptions that the row waits for, as far as known
	content *pubsubpb.PubsubMessage // nil while only the table has it
	size    int

	attempts int
	lease    int64 // number of the latest lease; 0 before the first
	deadline time.Time
	index    int // place in the queue of leases; -1 when not leased
	settled  bool
}

func newDelivery(id int64, waiting []int32, content *pubsubpb.PubsubMessage, size int) *delivery {
	return &delivery{id: id, waiting: waiting, content: content, size: size, index: -1}
}

// buffer is a queue of messages.
type buffer struct {
	messages []*delivery
	bytes    int
}

func (b *buffer) push(d *delivery) {
	b.messages = append(b.messages, d)
	b.bytes += d.size
}

// subscription hands out the messages of a topic to who pulls. Each message that
// it has not settled is in exactly one of these: ready; leased; again; or in the
// table, from cursor on, where the subscription is behind.
type subscription struct {
	name        string
	id          int32
	topic       *topic
	ackDeadline time.Duration
	maxBuffered int

	mu      sync.Mutex
	wake    chan struct{} // closed when something comes for those who wait; nil when nobody does
	ready   buffer
	leased  leases
	again   []*delivery         // nacked or expired: to be delivered again, once read from the table
	started map[int64]*delivery // delivered at least once and not acknowledged

	known   int64  // the table may have messages up to this id
	behind  bool   // the table has, or may have, messages from cursor on that are not here
	cursor  int64  // every message below is accounted for
	page    *page  // what is being read; nil for nothing
	arrived buffer // published while a page of the backlog is being read
	missed  bool   // arrived was full: the table has more
	epoch   int    // of reload: what was read for an earlier one is void
}

// page is what one read of the table fetches: messages that are delivered again,
// or a piece of the backlog.
type page struct {
	again    []*delivery
	from, to int64 // ids of the backlog
	epoch    int
	done     chan struct{} // closed when it is read, or failed

	found []*delivery
	next  int64 // of the backlog: the first id that was not read
	cut   bool  // of again: not all were read
}

func newSubscription(name string, id int32, of *topic, ackDeadline time.Duration) *subscription {
	return &subscription{
		name: name, id: id, topic: of, ackDeadline: ackDeadline, maxBuffered: maxBuffered, started: map[int64]*delivery{},
	}
}

func (s *subscription) full(b buffer) bool {
	return len(b.messages) >= s.maxBuffered || b.bytes >= maxBufferedBytes
}

// publish takes messages that were committed, in the order of their ids.
func (s *subscription) publish(messages []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range messages {
		s.known = d.id
		switch {
		case !s.behind && !s.full(s.ready):
			s.ready.push(d)
		case !s.behind:
			s.behind, s.cursor = true, d.id
		case s.page == nil: // a later page will find it
		case s.full(s.arrived):
			s.missed = true
		case !s.missed:
			s.arrived.push(d)
		}
	}
	s.notify()
}

// notify wakes who waits for messages. The caller holds the lock.
func (s *subscription) notify() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// take leases up to most messages of up to so many bytes, but at least one, if
// any is ready.
func (s *subscription) take(now time.Time, most, bytes int, lease func() int64) []*pubsubpb.ReceivedMessage {
	var taken []*pubsubpb.ReceivedMessage
	for len(s.ready.messages) > 0 && len(taken) < most {
		d := s.ready.messages[0]
		if len(taken) > 0 && bytes < d.size {
			break
		}
		s.ready.messages[0] = nil
		s.ready.messages = s.ready.messages[1:]
		s.ready.bytes -= d.size
		if d.settled { // acknowledged late, while it was to be delivered again
			continue
		}
		bytes -= d.size
		d.attempts++
		d.lease, d.deadline = lease(), now.Add(s.ackDeadline)
		heap.Push(&s.leased, d)
		s.started[d.id] = d
		taken = append(taken, &pubsubpb.ReceivedMessage{
			AckId: ackID{d.id, d.lease}.String(), Message: d.content, DeliveryAttempt: int32(min(d.attempts, 1<<30)), //nolint:gosec // bounded
		})
		d.content = nil
	}
	return taken
}

// expire ends the leases whose time is up.
func (s *subscription) expire(now time.Time) {
	for len(s.leased) > 0 && !s.leased[0].deadline.After(now) {
		if d, ok := heap.Pop(&s.leased).(*delivery); ok {
			s.again = append(s.again, d)
		}
	}
}

// begin says what has to be read from the table now; nil for nothing.
func (s *subscription) begin() *page {
	for len(s.again) > 0 && s.again[0].settled {
		s.again = s.again[1:]
	}
	switch {
	case len(s.again) > 0:
		n := min(len(s.again), againRows)
		s.page = &page{again: s.again[:n:n]}
	case s.behind:
		s.page = &page{from: s.cursor, to: s.known}
	default:
		return nil
	}
	s.page.epoch, s.page.done = s.epoch, make(chan struct{})
	return s.page
}

// end takes what was read. settling tells messages whose acknowledgement is not
// stored yet.
func (s *subscription) end(p *page, err error, settling func(id int64) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(p.done)
	s.page = nil
	arrived, missed := s.arrived, s.missed
	s.arrived, s.missed = buffer{}, false
	switch {
	case err != nil || p.epoch != s.epoch:
		// What arrived is in the table, and the cursor is where it was.
	case p.again != nil:
		s.endAgain(p)
	default:
		for _, d := range p.found {
			if s.started[d.id] == nil && !settling(d.id) { // else known from before a reload
				s.ready.push(d)
			}
		}
		s.cursor = p.next
		if p.next > p.to && !missed {
			s.ready.messages = append(s.ready.messages, arrived.messages...)
			s.ready.bytes += arrived.bytes
			s.behind = false
		}
	}
	s.notify()
}

// endAgain puts what was read for another delivery into the buffer.
func (s *subscription) endAgain(p *page) {
	content := make(map[int64]*delivery, len(p.found))
	for _, d := range p.found {
		content[d.id] = d
	}
	s.again = s.again[len(p.again):] // nobody else takes from its front
	var left []*delivery
	for _, d := range p.again {
		row := content[d.id]
		switch {
		case row != nil:
			d.content, d.size, d.waiting = row.content, row.size, row.waiting
			s.ready.push(d)
		case p.cut:
			left = append(left, d)
		default:
			delete(s.started, d.id) // somebody has emptied the table
		}
	}
	s.again = append(left, s.again...)
}

// settle ends a delivery for good and returns it; nil when the lease is unknown
// or another one has followed.
func (s *subscription) settle(id ackID) *delivery {
	d := s.started[id.message]
	if d == nil || d.lease != id.lease {
		return nil
	}
	delete(s.started, id.message)
	d.settled = true
	if d.index >= 0 {
		heap.Remove(&s.leased, d.index)
	}
	return d
}

// extend moves the end of a lease that has not ended; at once ends it.
func (s *subscription) extend(id ackID, now time.Time, by time.Duration) {
	d := s.started[id.message]
	if d == nil || d.lease != id.lease || d.index < 0 {
		return
	}
	if by <= 0 {
		heap.Remove(&s.leased, d.index)
		s.again = append(s.again, d)
		s.notify()
		return
	}
	d.deadline = now.Add(by)
	heap.Fix(&s.leased, d.index)
}

// reload forgets everything but what is leased, and reads the table anew up to
// an id.
func (s *subscription) reload(upTo int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.started {
		if d.index < 0 {
			delete(s.started, id)
		}
	}
	s.ready, s.again = buffer{}, nil
	s.known, s.behind, s.cursor = upTo, true, 0
	s.arrived, s.missed = buffer{}, false
	s.epoch++
	s.notify()
}

// leases is a heap of deliveries by deadline.
type leases []*delivery

func (l leases) Len() int           { return len(l) }
func (l leases) Less(i, j int) bool { return l[i].deadline.Before(l[j].deadline) }

func (l leases) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

// Push implements [heap.Interface].
func (l *leases) Push(x any) {
	if d, ok := x.(*delivery); ok {
		d.index = len(*l)
		*l = append(*l, d)
	}
}

// Pop implements [heap.Interface].
func (l *leases) Pop() any {
	last := len(*l) - 1
	d := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	d.index = -1
	return d
}
