package pgpubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// connections is how many INSERTs are in flight at once: one prepares while
	// another waits for the disk.
	connections = 3
	// schemaLock is the class of the advisory locks that the one server of a
	// database holds, one for each connection.
	schemaLock = 0x70756273 // "pubs"
	// idBlock is how many message ids the sequence gives at a time.
	idBlock = 1_000_000
	// writeTimeout bounds an INSERT and, where needed, a new connection for it.
	writeTimeout = 10 * time.Second
)

// writers are the connections that insert, and the order of what they insert:
// batches run beside each other, and are handed over in the order of their ids.
type writers struct {
	log    *slog.Logger
	reload func(upTo int64) // of every subscription
	free   chan *writer

	mu          sync.Mutex
	next, limit int64           // message ids that are reserved: next up to, not including, limit
	pending     []int64         // first ids of the batches that are not handed over, in their order
	last        <-chan struct{} // closed when the last of them is
}

// writer is one connection. Whoever has taken it from the free ones uses it alone.
type writer struct {
	config    *pgx.ConnConfig
	number    int
	conn      *pgx.Conn // nil when lost
	connected bool      // before, at least once
}

// open makes the connections and waits for the locks.
func (w *writers) open(ctx context.Context, config *pgx.ConnConfig) error {
	w.free = make(chan *writer, connections)
	for number := range connections {
		w.free <- &writer{config: config, number: number}
	}
	for range connections {
		one := <-w.free
		err := w.connect(ctx, one)
		w.free <- one
		if err != nil {
			return err
		}
	}
	return nil
}

// close closes the connections, which nobody uses any more.
func (w *writers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for range len(w.free) {
		if one := <-w.free; one.conn != nil {
			_ = one.conn.Close(ctx)
		}
	}
}

// write uses a connection. When that is lost, it makes another and tries once
// more: what use does must be safe to repeat.
func (w *writers) write(ctx context.Context, use func(context.Context, *pgx.Conn) error) error {
	var one *writer
	select {
	case one = <-w.free:
		defer func() { w.free <- one }()
	case <-ctx.Done():
		return fmt.Errorf("wait for a connection: %w", ctx.Err())
	}
	for attempt := 1; ; attempt++ {
		if one.conn == nil {
			if err := w.connect(ctx, one); err != nil {
				return err
			}
		}
		err := use(ctx, one.conn)
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[*pgconn.PgError](err); ok && !one.conn.IsClosed() {
			return err // PostgreSQL has refused: nothing was stored
		}
		_ = one.conn.Close(context.WithoutCancel(ctx)) // it is lost
		one.conn = nil
		if attempt == 2 || ctx.Err() != nil {
			return err
		}
	}
}

// connect opens a connection and waits for its lock: when it is ours, every
// earlier session that had it has ended, and what it did is visible or undone.
func (w *writers) connect(ctx context.Context, one *writer) error {
	conn, err := pgx.ConnectConfig(ctx, one.config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1, $2)`, schemaLock, one.number); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // of no use
		return fmt.Errorf("wait for another Pub/Sub server on this database to end: %w", err)
	}
	if one.connected {
		w.log.WarnContext(ctx, "connected to PostgreSQL again, reading undelivered messages anew")
		w.mu.Lock()
		defer w.mu.Unlock()
		upTo := w.next - 1
		if len(w.pending) > 0 {
			upTo = w.pending[0] - 1
		}
		w.reload(upTo)
	}
	one.conn, one.connected = conn, true
	return nil
}

// check finds out whether a connection is lost, and makes another if so.
func (w *writers) check(ctx context.Context) error {
	return w.write(ctx, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) })
}

// batch is the place of some messages in the order.
type batch struct {
	turn <-chan struct{} // closed when the batches before it are handed over
	done chan struct{}   // closed when it is
}

// begin gives a batch of so many messages its ids, from first on, and its place.
func (w *writers) begin(ctx context.Context, count int64, number func(first int64)) (batch, error) {
	for {
		if b, ok := w.place(count, number); ok {
			return b, nil
		}
		if err := w.reserve(ctx); err != nil {
			return batch{}, err
		}
	}
}

// place fails where not enough ids are reserved.
func (w *writers) place(count int64, number func(first int64)) (batch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit-w.next < count {
		return batch{}, false
	}
	number(w.next)
	w.pending = append(w.pending, w.next)
	w.next += count
	b := batch{turn: w.last, done: make(chan struct{})}
	w.last = b.done
	return b, true
}

// reserve takes a block of message ids. They are above all that were used before.
func (w *writers) reserve(ctx context.Context) error {
	var first int64
	err := w.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT nextval('pubsub.message_ids')`).Scan(&first)
	})
	if err != nil {
		return fmt.Errorf("reserve message ids: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if first >= w.limit { // else a later block is in use, and this one is lost
		w.next, w.limit = first, first+idBlock
	}
	return nil
}

// end waits for the batches before, and hands this one over: nothing where it has
// failed.
func (w *writers) end(b batch, hand func()) {
	if b.turn != nil {
		<-b.turn
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	hand()
	w.pending = w.pending[1:]
	close(b.done)
}
