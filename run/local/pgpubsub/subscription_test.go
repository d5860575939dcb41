package pgpubsub

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"pgregory.net/rapid"
)

// model drives one subscription as the server does, over a table that is a map,
// with a buffer of three messages and pages of two, so that it falls behind all
// the time.
type model struct {
	sub   *subscription
	now   time.Time
	next  int64
	lease int64

	table   map[int64]bool // rows that wait for the subscription
	acked   map[int64]bool // acknowledged for good
	storing map[int64]bool // acknowledged, and the row is still there
	stored  []int64        // deleted, and not safe from a crash of PostgreSQL
	crashed bool           // it has, at least once
	leases  map[int64]modelLease
	reading *page // and what the table gave
	rows    []int64
}

type modelLease struct {
	id  ackID
	end time.Time
}

const modelAckDeadline = 10 * time.Second

func newModel() *model {
	m := &model{
		sub: newSubscription("s", 1, &topic{}, modelAckDeadline), now: time.Unix(1_000_000, 0), next: 1,
		table: map[int64]bool{}, acked: map[int64]bool{}, storing: map[int64]bool{}, leases: map[int64]modelLease{},
	}
	m.sub.maxBuffered = 3
	return m
}

func (m *model) content(id int64) *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{MessageId: strconv.FormatInt(id, 10)}
}

// publish commits messages and hands them over.
func (m *model) publish(n int) {
	var messages []*delivery
	for range n {
		m.table[m.next] = true
		messages = append(messages, newDelivery(m.next, []int32{1}, m.content(m.next), 1))
		m.next++
	}
	m.sub.publish(messages)
}

// read takes the snapshot that a query would.
func (m *model) read() bool {
	m.sub.expire(m.now)
	if m.reading != nil || len(m.sub.ready.messages) > 0 {
		return false
	}
	p := m.sub.begin()
	if p == nil {
		return false
	}
	m.reading, m.rows = p, nil
	if p.again != nil {
		for _, d := range p.again {
			if m.table[d.id] {
				m.rows = append(m.rows, d.id)
			}
		}
		if len(m.rows) > 2 {
			m.rows, p.cut = m.rows[:2], true
		}
		return true
	}
	last := min(p.from+3, p.to) // few rows are looked at
	p.next = last + 1
	for _, id := range slices.Sorted(maps.Keys(m.table)) {
		if id >= p.from && id <= last {
			m.rows = append(m.rows, id)
		}
	}
	if len(m.rows) >= 2 {
		m.rows = m.rows[:2]
		p.next = m.rows[1] + 1
	}
	return true
}

func (m *model) end(err error) {
	if m.reading == nil {
		return
	}
	for _, id := range m.rows {
		m.reading.found = append(m.reading.found, newDelivery(id, []int32{1}, m.content(id), 1))
	}
	m.sub.end(m.reading, err, func(id int64) bool { return m.storing[id] })
	m.reading = nil
}

// store deletes the rows that were acknowledged.
func (m *model) store() {
	for id := range m.storing {
		delete(m.table, id)
		m.stored = append(m.stored, id)
		if m.crashed && m.reading != nil && slices.Contains(m.rows, id) {
			delete(m.acked, id) // the table that is read anew had it still
		}
	}
	clear(m.storing)
}

// pull leases messages and checks that each may be delivered.
func (m *model) pull(t *rapid.T, most int) int {
	m.sub.expire(m.now)
	taken := m.sub.take(m.now, most, 1000, func() int64 { m.lease++; return m.lease })
	for _, r := range taken {
		id, err := strconv.ParseInt(r.GetMessage().GetMessageId(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if m.acked[id] {
			t.Fatalf("message %d is delivered after it was acknowledged", id)
		}
		if l, ok := m.leases[id]; ok && l.end.After(m.now) {
			t.Fatalf("message %d is delivered while it is leased", id)
		}
		m.leases[id] = modelLease{id: ackID{id, m.lease - int64(len(taken)) + 1 + int64(slices.Index(taken, r))}, end: m.now.Add(modelAckDeadline)}
	}
	return len(taken)
}

// pick is some message that was delivered and not acknowledged.
func (m *model) pick(t *rapid.T) (int64, bool) {
	if len(m.leases) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.leases))).Draw(t, "message"), true
}

// TestSubscriptionLosesNothing plays at random what can happen to a subscription,
// in any order: in the end, whatever was not acknowledged is delivered, nothing
// is delivered while it is leased, and nothing after it was acknowledged, unless
// PostgreSQL has crashed and forgotten it.
func TestSubscriptionLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) { m.publish(rapid.IntRange(1, 4).Draw(t, "n")) },
			"pull":    func(t *rapid.T) { m.pull(t, rapid.IntRange(1, 4).Draw(t, "most")) },
			"read":    func(*rapid.T) { m.read() },
			"end": func(t *rapid.T) {
				var err error
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					err = errors.New("no database")
				}
				m.end(err)
			},
			"acknowledge": func(t *rapid.T) {
				if id, ok := m.pick(t); ok && m.sub.settle(m.leases[id].id) != nil {
					m.acked[id], m.storing[id] = true, true
					delete(m.leases, id)
				}
			},
			"store": func(*rapid.T) { m.store() },
			"give back": func(t *rapid.T) {
				if id, ok := m.pick(t); ok {
					l := m.leases[id]
					m.sub.extend(l.id, m.now, 0)
					m.leases[id] = modelLease{id: l.id} // it may come at once
				}
			},
			"extend": func(t *rapid.T) {
				if id, ok := m.pick(t); ok && m.leases[id].end.After(m.now) {
					l := m.leases[id]
					m.sub.extend(l.id, m.now, 20*time.Second)
					m.leases[id] = modelLease{id: l.id, end: m.now.Add(20 * time.Second)}
				}
			},
			"time passes": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second)
			},
			"crash of PostgreSQL": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "crashes") > 0 {
					return
				}
				for _, id := range m.stored {
					m.table[id] = true
					delete(m.acked, id)
				}
				m.stored, m.crashed = nil, true
				m.sub.reload(m.next - 1)
			},
		})
		// Whatever was going on: a patient caller gets the rest.
		m.end(nil)
		m.store()
		got := map[int64]bool{}
		for range 3 { // leases end twice: each message comes again and again
			m.now = m.now.Add(time.Minute)
			clear(got)
			for {
				before := maps.Clone(m.leases)
				n := m.pull(t, 3)
				for id, l := range m.leases {
					if before[id] != l {
						got[id] = true
					}
				}
				if n == 0 && !m.read() {
					break
				}
				m.end(nil)
			}
		}
		for id := range m.table {
			if !m.acked[id] && !got[id] {
				t.Fatalf("message %d is lost; behind %v from %d, known %d", id, m.sub.behind, m.sub.cursor, m.sub.known)
			}
		}
		if len(m.sub.ready.messages) > 0 || m.sub.ready.bytes != 0 {
			t.Fatalf("%d messages, %d bytes left in the buffer", len(m.sub.ready.messages), m.sub.ready.bytes)
		}
	})
}
