// Package queue is the Pub/Sub of the local system: a gRPC server that keeps messages in
// PostgreSQL and pushes them to the functions as production does.
//
// The real client library publishes; it is answered once its messages are committed, a row
// each. They survive the end of every process and a power cut. Each push subscription reads
// the rows of its topic in the order of their ids and delivers a bounded number at once; after
// a start it begins at the first row.
//
// The last acknowledgement deletes the row; an earlier one is written to it only if the last
// takes longer than [partialDelay]. After a crash, messages whose acknowledgements were lost are
// delivered again as attempt 1, which Pub/Sub may do at any time. Acknowledgements use one
// connection, the session, whose advisory lock allows one queue at a time on a database. If the
// session is lost, PostgreSQL may have crashed and lost what functions committed without waiting
// for the disk: everything in memory is dropped, and the table is read anew.
//
// Dead letters are pulled. Topics and subscriptions are those of [Topics] and [Routes]; all
// other calls of Pub/Sub are answered UNIMPLEMENTED.
package queue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/pause"
)

//go:embed schema.sql
var schema string

// Config configures a queue.
type Config struct {
	DatabaseURL string // the PostgreSQL that keeps the messages, in a schema named pubsub
	Project     string // of the topics and subscriptions
	Policy      Policy
	// Wait waits for a backoff or until the context ends; nil waits on a real clock.
	Wait  func(ctx context.Context, d time.Duration)
	Clock func() time.Time
	Log   *slog.Logger
}

// Queue is a running queue.
type Queue struct {
	pubsubpb.UnimplementedPublisherServer
	pubsubpb.UnimplementedSubscriberServer

	Address string // where the queue listens, host:port

	config           Config
	grpc             *grpc.Server
	topics           map[string][]*subscription // by full name
	subscriptions    map[string]*subscription   // by name
	publishes        *coalesce.Group[*pubsubpb.PublishRequest, struct{}]
	acknowledgements *coalesce.Group[*message, struct{}]
	pool             *pgxpool.Pool // inserts and reads
	session          *pgx.Conn     // deletes acknowledged messages, and holds the lock
	closed           chan struct{} // ends the attempts to reconnect
	next             int64         // id of the next message; only insert uses it
	// acknowledged are messages that some subscriptions have acknowledged since the row was
	// written. Only storeAcknowledgements uses it, and Close.
	acknowledged map[int64]*acknowledged

	mu         sync.Mutex
	changed    sync.Cond // broadcast for the readers of the table, and for Drain
	generation int       // counts how often everything in memory was dropped
	counts     Counts
	deliver    func(*message) // starts a delivery, while Run runs
}

const (
	stopTimeout  = 5 * time.Second        // for calls in flight when the queue closes
	tableTimeout = 10 * time.Second       // for a statement
	lockTimeout  = 30 * time.Second       // for the queue before this one to end
	retryDelay   = 200 * time.Millisecond // after a failure
	batchBytes   = 8 << 20                // of one INSERT
	poolSize     = 6                      // connections for the INSERT and for reads
	sessionLock  = 0x70756273             // "pubs", the advisory lock of the one queue of a database
	// maxRequestBytes is a publish request's limit at Google:
	// https://cloud.google.com/pubsub/quotas#resource_limits
	maxRequestBytes = 10_000_000
	// pullRows bounds a pull's messages, because a client other than the library's accepts
	// 4 MiB at most. leaseTime is how long they are not pulled again unless the caller changes it.
	pullRows  = 100
	leaseTime = 10 * time.Second
)

// Open starts a queue with the messages in the database. It pushes nothing before
// [Queue.Run]. ctx bounds only the start.
func Open(ctx context.Context, config Config) (*Queue, error) {
	config.Policy = config.Policy.WithDefaults()
	if config.Wait == nil {
		config.Wait = func(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) }
	}
	q := &Queue{
		config: config, topics: map[string][]*subscription{}, subscriptions: map[string]*subscription{}, closed: make(chan struct{}),
		acknowledged: map[int64]*acknowledged{},
		grpc:         grpc.NewServer(grpc.MaxRecvMsgSize(2 * maxRequestBytes)),
	}
	q.changed.L = &q.mu
	for _, topic := range Topics() {
		q.subscribe(topic+DeadLetterSuffix, topic+DeadLetterSuffix).leases = map[int64]time.Time{}
	}
	for _, route := range Routes() {
		q.subscribe(route.Topic, route.Function).deadLetter = TopicName(config.Project, route.Topic+DeadLetterSuffix)
	}
	// One at a time: ids are committed in their order.
	q.publishes = coalesce.New(q.insert, coalesce.Options[*pubsubpb.PublishRequest]{
		Wait: coalesce.Wait{Gather: publishDelay}, MaxSize: batchBytes, Size: func(request *pubsubpb.PublishRequest) int { return proto.Size(request) },
	})
	q.acknowledgements = coalesce.New(q.storeAcknowledgements, coalesce.Options[*message]{Wait: coalesce.Wait{Gather: acknowledgeDelay}, MaxItems: maxHeld / 4})
	pubsubpb.RegisterPublisherServer(q.grpc, q)
	pubsubpb.RegisterSubscriberServer(q.grpc, q)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	q.Address = listener.Addr().String()
	if err := q.openDatabase(ctx); err != nil {
		q.Close() //nolint:contextcheck // ctx may have ended
		return nil, errors.Join(fmt.Errorf("queue's database: %w", err), listener.Close())
	}
	go func() { _ = q.grpc.Serve(listener) }() // until Close, which waits for it
	return q, nil
}

func (q *Queue) subscribe(topic, name string) *subscription {
	sub := &subscription{name: name, topic: topic, pending: true, posts: make(chan struct{}, q.config.Policy.MaxOutstanding)}
	sub.fullName, topic = SubscriptionName(q.config.Project, name), TopicName(q.config.Project, topic)
	q.subscriptions[name], q.topics[topic] = sub, append(q.topics[topic], sub)
	return sub
}

func (q *Queue) openDatabase(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(q.config.DatabaseURL)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	config.MaxConns = poolSize
	// A publisher is answered when its message is on disk, whatever the server's default.
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	// Every statement uses the primary key. A planner that last saw the table empty would
	// choose otherwise, and keep that plan when the table has filled.
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	config.ConnConfig.RuntimeParams["enable_bitmapscan"] = "off"
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err == nil {
		err = q.connect(ctx)
	}
	if err == nil {
		_, err = q.session.Exec(ctx, schema)
	}
	if err == nil {
		err = q.session.QueryRow(ctx, `SELECT nextval('pubsub.message_ids')`).Scan(&q.next)
	}
	return err //nolint:wrapcheck // the caller does
}

// connect opens the session. Once it has the lock, every earlier session has ended, and its
// work is visible or undone.
func (q *Queue) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	config := q.pool.Config().ConnConfig
	config.RuntimeParams["synchronous_commit"] = "off" // a lost acknowledgement means one more delivery
	session, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("queue's session: %w", err)
	}
	if q.session != nil { // when a network lost it, the server does not know for two hours, and keeps its lock
		_, err = session.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid = @lost`,
			pgx.StrictNamedArgs{"lost": q.session.PgConn().PID()})
	}
	if err == nil {
		_, err = session.Exec(ctx, `SELECT pg_advisory_lock(@lock)`, pgx.StrictNamedArgs{"lock": sessionLock})
	}
	if err != nil {
		_ = session.Close(context.WithoutCancel(ctx)) // of no use
		return fmt.Errorf("wait for another queue on this database to end: %w", err)
	}
	q.session = session
	return nil
}

// Close ends the queue, whose Run must have ended: calls in flight are answered, and
// acknowledgements are stored. Everything else stays in the database.
func (q *Queue) Close() {
	timeout := time.AfterFunc(stopTimeout, func() { close(q.closed); q.grpc.Stop() })
	q.grpc.GracefulStop()
	q.publishes.Close() // a caller may have left before its batch
	q.acknowledgements.Close()
	timeout.Stop()
	if q.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = q.deleteAcknowledged(ctx, q.config.Clock()) // what fails is delivered again
		_ = q.session.Close(ctx)                        // everything is stored
	}
	if q.pool != nil {
		q.pool.Close()
	}
}

// Publish implements [pubsubpb.PublisherServer]. It answers when the messages are
// committed.
func (q *Queue) Publish(ctx context.Context, request *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	if _, ok := q.topics[request.GetTopic()]; !ok {
		return nil, status.Errorf(codes.NotFound, "topic %q does not exist", request.GetTopic())
	}
	if size := proto.Size(request); len(request.GetMessages()) == 0 || size > maxRequestBytes {
		return nil, status.Errorf(codes.InvalidArgument, "%d messages of %d bytes, of at most %d", len(request.GetMessages()), size, maxRequestBytes)
	}
	if _, err := q.publishes.Do(ctx, request); err != nil {
		return nil, unavailable(err)
	}
	response := &pubsubpb.PublishResponse{}
	for _, m := range request.GetMessages() {
		response.MessageIds = append(response.MessageIds, m.GetMessageId())
	}
	return response, nil
}

// insert stores the messages of several callers and hands them to the subscriptions that
// have read the whole table and have room. The others read them there; so do all if the
// outcome of the INSERT is unknown.
func (q *Queue) insert(ctx context.Context, batch []*pubsubpb.PublishRequest) ([]struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	var messages []*message // of no subscription yet
	var topics []string
	var names []string // of subscriptions, with blanks between them
	var ids []int64
	var contents [][]byte
	now := q.config.Clock().UTC().Truncate(time.Microsecond) // the column's resolution
	for _, request := range batch {
		var subscribed []string
		subscriptions := q.topics[request.GetTopic()]
		for _, sub := range subscriptions {
			subscribed = append(subscribed, sub.name)
		}
		for _, m := range request.GetMessages() {
			m.MessageId, m.PublishTime = "", nil // "must not be populated by the publisher"
			content, err := proto.Marshal(m)
			if err != nil {
				return nil, fmt.Errorf("encode a message: %w", err)
			}
			messages = append(messages, newMessage(q.next, now, m, len(subscribed)))
			topics = append(topics, subscriptions[0].topic)
			ids, names, contents = append(ids, q.next), append(names, strings.Join(subscribed, " ")), append(contents, content)
			q.next++
		}
	}
	_, err := q.pool.Exec(ctx, `
INSERT INTO pubsub.pending (topic, id, publish_time, subscriptions, content)
SELECT topic, id, @now, string_to_array(names, ' '), content
FROM unnest(@topics::text[], @names::text[], @ids::bigint[], @contents::bytea[]) AS m (topic, names, id, content)`,
		pgx.StrictNamedArgs{"topics": topics, "names": names, "ids": ids, "now": now, "contents": contents})
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range messages {
		for name := range strings.SplitSeq(names[i], " ") {
			q.arrive(q.subscriptions[name], *m, err)
		}
	}
	q.changed.Broadcast()
	return make([]struct{}, len(batch)), err //nolint:wrapcheck // the callers do
}

// Pull implements [pubsubpb.SubscriberServer]. It never waits for a message.
func (q *Queue) Pull(ctx context.Context, request *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	sub, _, err := q.pulled(request.GetSubscription(), nil)
	if err != nil {
		return nil, err
	}
	sub.pulling.Lock()
	defer sub.pulling.Unlock()
	now := q.config.Clock()
	maps.DeleteFunc(sub.leases, func(_ int64, end time.Time) bool { return !end.After(now) })
	limit := min(max(int(request.GetMaxMessages()), 1), pullRows)
	found, err := q.read(ctx, sub, 0, slices.Collect(maps.Keys(sub.leases)), limit)
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pubsubpb.PullResponse{}
	for _, m := range found {
		sub.leases[m.id] = now.Add(leaseTime)
		response.ReceivedMessages = append(response.ReceivedMessages, &pubsubpb.ReceivedMessage{
			AckId: m.content.GetMessageId(), Message: m.content,
		})
	}
	return response, nil
}

// Acknowledge implements [pubsubpb.SubscriberServer].
func (q *Queue) Acknowledge(ctx context.Context, request *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	sub, ids, err := q.pulled(request.GetSubscription(), request.GetAckIds())
	if err != nil {
		return nil, err
	}
	if _, err := q.pool.Exec(ctx, deleteSQL, pgx.StrictNamedArgs{"topic": sub.topic, "ids": ids}); err != nil {
		return nil, unavailable(err)
	}
	sub.pulling.Lock()
	defer sub.pulling.Unlock()
	for _, id := range ids {
		delete(sub.leases, id)
	}
	return &emptypb.Empty{}, nil
}

// ModifyAckDeadline implements [pubsubpb.SubscriberServer].
func (q *Queue) ModifyAckDeadline(_ context.Context, request *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	sub, ids, err := q.pulled(request.GetSubscription(), request.GetAckIds())
	if err != nil {
		return nil, err
	}
	end := q.config.Clock().Add(time.Duration(request.GetAckDeadlineSeconds()) * time.Second)
	sub.pulling.Lock()
	defer sub.pulling.Unlock()
	for _, id := range ids {
		sub.leases[id] = end
	}
	return &emptypb.Empty{}, nil
}

// pulled returns a pulled subscription, and the messages of ack ids. An ack id is its
// message's id.
func (q *Queue) pulled(name string, ackIDs []string) (*subscription, []int64, error) {
	sub := q.subscriptions[name[strings.LastIndex(name, "/")+1:]]
	if sub == nil || sub.leases == nil || sub.fullName != name {
		return nil, nil, status.Errorf(codes.NotFound, "there is no subscription %q to pull from", name)
	}
	ids := make([]int64, len(ackIDs))
	for i, ackID := range ackIDs {
		var err error
		if ids[i], err = strconv.ParseInt(ackID, 10, 64); err != nil {
			return nil, nil, status.Errorf(codes.InvalidArgument, "%.100q is not an ack id", ackID)
		}
	}
	return sub, ids, nil
}

// unavailable is the answer to a caller who should try again.
func unavailable(err error) error { return status.Errorf(codes.Unavailable, "%v", err) }
