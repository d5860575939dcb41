package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/push"
)

const (
	// maxHeld is how many messages a push subscription delivers at once, including those that
	// wait for their next attempt. It reads a page of the table once half of them are done.
	maxHeld  = 4096
	pageRows = 1000
	// publishDelay is how long a publish waits for others to share its COMMIT. All functions
	// then get a batch at once.
	publishDelay = 10 * time.Millisecond
	// idleTimeout is how long a goroutine that posts messages waits for another.
	idleTimeout = time.Second
	// acknowledgeDelay is how long acknowledgements are batched. A crash loses the batch, and
	// its messages are delivered again.
	acknowledgeDelay = 250 * time.Millisecond
	// partialDelay is how long an acknowledgement waits for those of the topic's other
	// subscriptions, which mostly follow at once: the row is then deleted without an update.
	partialDelay = time.Second

	deleteSQL = `DELETE FROM pubsub.pending WHERE topic = @topic AND id = ANY (@ids)`
)

// subscription is a function's, to which messages are pushed, or a dead letter's, which is
// pulled. The queue's lock guards the fields for pushing.
type subscription struct {
	name, fullName string
	topic          string

	deadLetter string // topic
	posts      chan struct{}
	function   http.Handler // while messages are delivered
	held       int          // messages that are delivered
	cursor     int64        // id at which reading the table continues
	pending    bool         // the table has more
	inserted   int          // messages so far

	pulling sync.Mutex
	leases  map[int64]time.Time // if it is pulled: until when a message is not pulled again
}

// message is a message in delivery, or one that was pulled.
type message struct {
	sub        *subscription
	id         int64
	generation int
	content    *pubsubpb.PubsubMessage
	pending    int // subscriptions that had not acknowledged it when it was read
}

// newMessage sets the fields that the service adds to a message.
func newMessage(id int64, published time.Time, content *pubsubpb.PubsubMessage, pending int) *message {
	content.MessageId, content.PublishTime = strconv.FormatInt(id, 10), timestamppb.New(published)
	return &message{id: id, content: content, pending: pending}
}

// acknowledged is a message that some of its pending subscriptions have acknowledged, the first
// of them at a time.
type acknowledged struct {
	topic   string
	by      []string
	pending int
	since   time.Time
}

// arrive hands an inserted message to a subscription. The caller holds the lock.
func (q *Queue) arrive(sub *subscription, m message, err error) {
	sub.inserted++
	if err == nil && !sub.pending && m.id < sub.cursor {
		return // the table was read between the commit and now
	}
	if err == nil && sub.function != nil && !sub.pending && sub.held < maxHeld {
		m.sub, m.generation, sub.cursor = sub, q.generation, m.id+1
		q.deliver(&m)
		return
	}
	if sub.pending = true; err != nil {
		sub.cursor = min(sub.cursor, m.id)
	}
}

// Counts are totals of all push subscriptions since the start.
type Counts struct {
	Delivered    int64 // messages that a function accepted
	Refused      int64 // attempts that failed: any status but 2xx, or no answer
	DeadLettered int64 // messages that the queue or their function dead-lettered
}

// Counts returns the totals since the start.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts
}

// Run posts messages to functions, by name, until ctx ends, and waits for the posts in flight.
// Undelivered messages, and those of functions that are not given, stay in the table.
func (q *Queue) Run(ctx context.Context, functions map[string]http.Handler) {
	defer context.AfterFunc(ctx, q.broadcast)()
	var deliveries sync.WaitGroup
	idle := make(chan *message) // to a goroutine that has posted another
	q.mu.Lock()
	q.deliver = func(m *message) {
		m.sub.held++
		select {
		case idle <- m:
		default:
			deliveries.Go(func() { q.postAll(ctx, m, idle) })
		}
	}
	for _, sub := range q.subscriptions {
		if sub.function = functions[sub.name]; sub.function != nil {
			deliveries.Go(func() { q.readTable(ctx, sub) })
		}
	}
	q.changed.Broadcast()
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	for _, sub := range q.subscriptions {
		sub.pending = true // nothing more is delivered
	}
	q.mu.Unlock()
	deliveries.Wait()
}

func (q *Queue) broadcast() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// Drain waits until Run has nothing left to deliver.
func (q *Queue) Drain(ctx context.Context) error {
	defer context.AfterFunc(ctx, q.broadcast)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for busy := true; busy; {
		busy = q.deliver == nil // not running yet
		for _, sub := range q.subscriptions {
			busy = busy || sub.held > 0 || sub.function != nil && sub.pending
		}
		if busy && ctx.Err() != nil {
			return fmt.Errorf("drain: %w", ctx.Err())
		}
		if busy {
			q.changed.Wait()
		}
	}
	return nil
}

// readTable delivers a subscription's messages, when there are some and room for a page of
// them, until ctx ends.
func (q *Queue) readTable(ctx context.Context, sub *subscription) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		if !sub.pending || sub.held > maxHeld/2 {
			q.changed.Wait()
			continue
		}
		from, inserted, generation := sub.cursor, sub.inserted, q.generation
		sub.cursor = math.MaxInt64
		q.mu.Unlock()
		found, err := q.read(ctx, sub, from, nil, pageRows)
		if err != nil && ctx.Err() == nil {
			q.config.Log.WarnContext(ctx, "undelivered messages are not read yet", "subscription", sub.name, "error", err.Error())
			_ = pause.For(ctx, retryDelay)
		}
		q.mu.Lock()
		q.changed.Broadcast()
		if generation != q.generation {
			continue // the table is read anew
		}
		for _, m := range found {
			from, m.sub, m.generation = m.id+1, sub, generation
			q.deliver(m)
		}
		sub.cursor = min(sub.cursor, from) // an INSERT that failed during the read may have set it
		// If ctx has ended, Run may have set it: nothing more is delivered.
		sub.pending = sub.inserted != inserted || len(found) == pageRows || err != nil || ctx.Err() != nil
	}
}

// read fetches a subscription's messages from an id on, without those that are leased.
func (q *Queue) read(ctx context.Context, sub *subscription, from int64, leased []int64, limit int) ([]*message, error) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	rows, _ := q.pool.Query(ctx, `
SELECT id, publish_time, content, cardinality(subscriptions) FROM pubsub.pending
WHERE topic = @topic AND id >= @from AND @subscription = ANY (subscriptions) AND id <> ALL (coalesce(@leased::bigint[], '{}'))
ORDER BY id LIMIT @limit`,
		pgx.StrictNamedArgs{"topic": sub.topic, "subscription": sub.name, "from": from, "leased": leased, "limit": limit})
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*message, error) { // with the error of the query
		var id int64
		var published time.Time
		var encoded pgtype.DriverBytes
		var content pubsubpb.PubsubMessage
		var pending int
		err := errors.Join(row.Scan(&id, &published, &encoded, &pending), proto.Unmarshal(encoded, &content))
		return newMessage(id, published, &content, pending), err
	})
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return found, nil
}

// postAll posts a message and then others, until none comes for a while. A new goroutine for
// each would grow its stack anew, which is a tenth of the processor time of a reading.
func (q *Queue) postAll(ctx context.Context, m *message, next <-chan *message) {
	timeout := time.NewTimer(idleTimeout)
	for {
		q.post(ctx, m)
		timeout.Reset(idleTimeout)
		select {
		case m = <-next:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// post posts a message until the function accepts it or the last attempt has failed. It
// acknowledges the message only after the function or the dead letter topic has it.
func (q *Queue) post(ctx context.Context, m *message) {
	policy := q.config.Policy
	for attempt, backoff := 1, policy.MinBackoff; ; attempt, backoff = attempt+1, min(2*backoff, policy.MaxBackoff) {
		m.sub.posts <- struct{}{}
		code, err := try(ctx, m, attempt)
		<-m.sub.posts
		deadLettered := code == http.StatusAccepted // by the function
		if err != nil && attempt >= policy.MaxAttempts {
			deadLettered = q.publishDeadLetter(ctx, m, attempt, err)
		}
		q.mu.Lock()
		switch {
		case err != nil:
			q.counts.Refused++
		case !deadLettered:
			q.counts.Delivered++
		}
		if deadLettered {
			q.counts.DeadLettered++
		}
		q.mu.Unlock()
		if err == nil || deadLettered {
			_ = q.acknowledgements.Start(ctx, m) // on failure the message is delivered again
			return
		}
		q.config.Wait(ctx, backoff)
		q.mu.Lock()
		dropped := m.generation != q.generation // the table is read anew
		q.mu.Unlock()
		if dropped || ctx.Err() != nil {
			return
		}
	}
}

// try makes one attempt and returns the answer's status; any but 2xx is an error. A function of this
// process takes the message as it is, another handler a request.
func try(ctx context.Context, m *message, attempt int) (int, error) {
	delivered := push.Message{
		ID: m.content.GetMessageId(), Data: m.content.GetData(), Attributes: m.content.GetAttributes(),
		OrderingKey: m.content.GetOrderingKey(), PublishTime: m.content.GetPublishTime().AsTime(),
		Subscription: m.sub.fullName, DeliveryAttempt: attempt,
	}
	ctx, cancel := context.WithTimeout(ctx, PushTimeout)
	defer cancel()
	var code int
	if receiver, ok := m.sub.function.(*push.Receiver); ok {
		code = receiver.Receive(ctx, delivered)
	} else {
		body, err := push.Encode(delivered)
		if err != nil {
			return 0, err
		}
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		m.sub.function.ServeHTTP(answer, request)
		code = answer.Code
	}
	if code < 200 || code > 299 {
		return code, fmt.Errorf("answered %d", code)
	}
	return code, nil
}

// publishDeadLetter publishes a message to the dead letter topic with Pub/Sub's
// attributes added, and reports whether that succeeded.
func (q *Queue) publishDeadLetter(ctx context.Context, m *message, attempts int, cause error) bool {
	attributes := map[string]string{}
	maps.Copy(attributes, m.content.GetAttributes())
	attributes[push.ForwardedDeliveryCount] = strconv.Itoa(attempts)
	attributes[push.ForwardedSubscription] = m.sub.fullName
	attributes[push.ForwardedPublishTime] = m.content.GetPublishTime().AsTime().Format(time.RFC3339Nano)
	log := q.config.Log.With("message_id", m.content.GetMessageId(), "subscription", m.sub.name, "topic", m.sub.deadLetter)
	_, err := q.Publish(ctx, &pubsubpb.PublishRequest{Topic: m.sub.deadLetter, Messages: []*pubsubpb.PubsubMessage{
		{Data: m.content.GetData(), Attributes: attributes, OrderingKey: m.content.GetOrderingKey()},
	}})
	if err != nil {
		log.ErrorContext(ctx, "dead letter publish failed", "error", err.Error())
		return false
	}
	log.ErrorContext(ctx, "message dead-lettered", "attempts", attempts, "error", cause.Error())
	return true
}

// storeAcknowledgements stores a batch of acknowledgements; a nil one stands for those whose
// [partialDelay] has passed. If that fails it opens another session, and drops everything in
// memory.
func (q *Queue) storeAcknowledgements(ctx context.Context, batch []*message) ([]struct{}, error) {
	now := q.config.Clock()
	var done []*message
	for _, m := range batch {
		if m == nil || m.generation != q.generation { // which only this function changes
			continue
		}
		done = append(done, m)
		a := q.acknowledged[m.id]
		if a == nil {
			a = &acknowledged{topic: m.sub.topic, pending: m.pending, since: now}
			q.acknowledged[m.id] = a
		}
		a.by, a.pending = append(a.by, m.sub.name), min(a.pending, m.pending)
	}
	if err := q.deleteAcknowledged(ctx, now.Add(-partialDelay)); err != nil {
		q.config.Log.WarnContext(ctx, "the queue's session is lost, reading undelivered messages anew", "error", err.Error())
		q.reconnect(ctx)
		return nil, fmt.Errorf("store acknowledgements: %w", err)
	}
	if len(q.acknowledged) > 0 && len(done) > 0 {
		time.AfterFunc(partialDelay, func() { _ = q.acknowledgements.Start(ctx, nil) })
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range done {
		m.sub.held--
	}
	q.changed.Broadcast()
	return make([]struct{}, len(batch)), nil
}

// deleteAcknowledged deletes the messages that all subscriptions have acknowledged, and stores
// other acknowledgements made before a time in the rows.
func (q *Queue) deleteAcknowledged(ctx context.Context, before time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	type acknowledger struct{ topic, subscription string }
	all, some := map[string][]int64{}, map[acknowledger][]int64{} // ids
	stored := func(_ int64, a *acknowledged) bool { return len(a.by) == a.pending || !a.since.After(before) }
	for id, a := range q.acknowledged {
		switch {
		case len(a.by) == a.pending:
			all[a.topic] = append(all[a.topic], id)
		case stored(id, a):
			for _, name := range a.by {
				some[acknowledger{a.topic, name}] = append(some[acknowledger{a.topic, name}], id)
			}
		}
	}
	statements := &pgx.Batch{} // which share a COMMIT
	for topic, ids := range all {
		statements.Queue(deleteSQL, pgx.StrictNamedArgs{"topic": topic, "ids": ids})
	}
	for by, ids := range some {
		statements.Queue(`UPDATE pubsub.pending SET subscriptions = array_remove(subscriptions, @subscription) WHERE topic = @topic AND id = ANY (@ids)`,
			pgx.StrictNamedArgs{"topic": by.topic, "ids": ids, "subscription": by.subscription})
		statements.Queue(deleteSQL+` AND subscriptions = '{}'`, pgx.StrictNamedArgs{"topic": by.topic, "ids": ids})
	}
	if statements.Len() == 0 {
		return nil
	}
	if err := q.session.SendBatch(ctx, statements).Close(); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	maps.DeleteFunc(q.acknowledged, stored)
	return nil
}

// reconnect opens a session, and then drops everything in memory.
func (q *Queue) reconnect(ctx context.Context) {
	_ = q.session.Close(ctx)
	for q.connect(ctx) != nil {
		select {
		case <-q.closed:
			return
		case <-time.After(retryDelay):
		}
	}
	clear(q.acknowledged)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.generation++
	for _, sub := range q.subscriptions {
		sub.held, sub.cursor, sub.pending = 0, 0, true
	}
	q.changed.Broadcast()
}
