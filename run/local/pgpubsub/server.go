// Package pgpubsub is a Pub/Sub whose messages survive: a gRPC server for the
// real client library that keeps what is not acknowledged in PostgreSQL. What a
// publisher was told is taken survives the end of every process, and a power cut;
// at the next start it is delivered. run/local uses it where production uses
// Google's service, and nothing else does.
//
// It serves the calls that our programs make: CreateTopic, GetTopic, Publish,
// CreateSubscription, Pull, Acknowledge and ModifyAckDeadline. Every other call,
// and every other setting of a topic or a subscription, is answered UNIMPLEMENTED:
// no push, no streaming pull, no order, no filter, no dead letter, no retention
// (a message stays until it is acknowledged, however long that takes).
//
// # How it works
//
// Publishes of concurrent callers share one INSERT, and are answered after its
// COMMIT. Only then are the messages handed to the subscriptions, which keep them
// in memory, within bounds, until they are pulled. A subscription whose buffer is
// full falls behind: it drops what comes and reads the table in pages, from where
// it stopped, until it has caught up. After a start every subscription is behind.
// So the table is read only for a backlog, and for messages that are delivered
// again.
//
// Leases (ack deadlines) and delivery attempts are in memory: after a restart
// everything that is not acknowledged is delivered at once, as attempt 1. Attempts
// are counted for each subscription, and told although no subscription has a dead
// letter policy: who does the dead lettering here needs them.
//
// An acknowledgement is answered before it is stored. Those of many callers are
// stored together, a few milliseconds later: one DELETE for the messages that all
// subscriptions of their topic have acknowledged. A message that only some have
// acknowledged waits a fifth of a second for the others before its row is updated.
// A crash loses the acknowledgements of that time, and the messages are delivered
// once more, which the service may do at any time.
//
// One server at a time uses a database: each connection that inserts holds an
// advisory lock. When such a connection is lost, nobody knows whether its INSERT
// took effect, or whether PostgreSQL itself has crashed and forgotten a DELETE. A
// new connection gets the lock only when the old session has ended, and every
// subscription then reads the table anew.
package pgpubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"coldaisle.dev/shared/coalesce"
)

// Config says where a server listens and what it keeps its messages in.
type Config struct {
	// DatabaseURL is the PostgreSQL that keeps the messages, in a schema named
	// pubsub, which the server makes.
	DatabaseURL string
	// Address to listen on; empty for a free port of 127.0.0.1.
	Address string
	// ServerOptions are added to those of the gRPC server: an interceptor is how a
	// test makes calls fail or late.
	ServerOptions []grpc.ServerOption
	Clock         func() time.Time
	Log           *slog.Logger
}

// Server is a running Pub/Sub.
type Server struct {
	pubsubpb.UnimplementedPublisherServer
	pubsubpb.UnimplementedSubscriberServer

	config    Config
	address   string
	grpc      *grpc.Server
	serving   sync.WaitGroup
	close     func() error  // once
	closing   chan struct{} // closed when it begins
	pool      *pgxpool.Pool // reads pages, stores acknowledgements
	writers   *writers
	publishes *coalesce.Group[*publication, struct{}]
	settler   *settler
	leases    atomic.Int64 // number of the last lease

	creating      sync.Mutex // one topic or subscription at a time
	mu            sync.RWMutex
	topics        map[string]*topic
	subscriptions map[string]*subscription
}

type topic struct {
	name string
	id   int32
	// subscriptions is replaced, never changed: a publish reads it without a lock.
	subscriptions atomic.Pointer[[]*subscription]
}

const (
	// stopTimeout is how long calls in flight may take when the server closes.
	stopTimeout = 5 * time.Second
	// largestCall is more than a publisher may send, so that it is told why.
	largestCall = 20 << 20
)

// Open starts a server with the topics, subscriptions and messages that the
// database has. ctx bounds the start only.
func Open(ctx context.Context, config Config) (*Server, error) {
	s := &Server{
		config: config, writers: &writers{log: config.Log}, closing: make(chan struct{}),
		topics: map[string]*topic{}, subscriptions: map[string]*subscription{},
	}
	s.writers.reload = s.reload
	s.close = sync.OnceValue(s.shutdown)
	// An ack id of an earlier process must mean nothing to this one.
	s.leases.Store(int64(rand.Uint32()) << 24) //nolint:gosec // chance, not secrecy
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) error {
	if err := s.openDatabase(ctx); err != nil {
		return err
	}
	s.settler = newSettler(ctx, s.pool, s.config.Clock, s.config.Log, s.writers.check)
	s.publishes = coalesce.New(s.insert, coalesce.Options[*publication]{
		MaxInFlight: connections, MaxItems: batchRequests, MaxSize: batchBytes, Size: func(p *publication) int { return p.size },
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(s.config.Address, "127.0.0.1:0"))
	if err != nil {
		return fmt.Errorf("pub/sub server: %w", err)
	}
	s.address = listener.Addr().String()
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(largestCall)}, s.config.ServerOptions...)...)
	pubsubpb.RegisterPublisherServer(s.grpc, s)
	pubsubpb.RegisterSubscriberServer(s.grpc, s)
	s.serving.Go(func() { _ = s.grpc.Serve(listener) }) // ends with Close; an error before it ends every call
	return nil
}

// Address is where the server listens, host:port.
func (s *Server) Address() string { return s.address }

// Close ends the server: calls in flight are answered, and what was acknowledged
// is stored. What is not acknowledged stays in the database.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutdown() error {
	close(s.closing)
	if s.grpc != nil {
		timeout := time.AfterFunc(stopTimeout, s.grpc.Stop)
		s.grpc.GracefulStop()
		timeout.Stop()
		s.serving.Wait()
	}
	var err error
	if s.publishes != nil {
		s.publishes.Close() // a caller may have left before his batch
		err = s.settler.close()
	}
	s.writers.close()
	if s.pool != nil {
		s.pool.Close()
	}
	return err
}

// attach adds a subscription to its topic.
func (s *Server) attach(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscriptions[sub.name] = sub
	var all []*subscription
	if before := sub.topic.subscriptions.Load(); before != nil {
		all = slices.Clone(*before)
	}
	all = append(all, sub)
	sub.topic.subscriptions.Store(&all)
}

// reload makes every subscription read the table anew, up to an id.
func (s *Server) reload(upTo int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, sub := range s.subscriptions {
		sub.reload(upTo)
	}
}
