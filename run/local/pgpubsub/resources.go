package pgpubsub

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// checkName holds a name against the documented form: "{topic} must start with a
// letter, and contain only letters, numbers, dashes, underscores, periods, tildes,
// plus or percent signs. It must be between 3 and 255 characters in length".
func checkName(name, kind string) error {
	if !regexp.MustCompile(`^projects/[^/]+/` + kind + `/[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`).MatchString(name) {
		return status.Errorf(codes.InvalidArgument, "%q is not a name of the form projects/P/%s/NAME", name, kind)
	}
	return nil
}

// CreateTopic implements [pubsubpb.PublisherServer].
func (s *Server) CreateTopic(ctx context.Context, request *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	name := request.GetName()
	if err := checkName(name, "topics"); err != nil {
		return nil, err
	}
	created := &pubsubpb.Topic{Name: name}
	if !proto.Equal(request, created) {
		return nil, status.Errorf(codes.Unimplemented, "topics have no settings here")
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if _, err := s.topic(name); err == nil {
		return nil, status.Errorf(codes.AlreadyExists, "topic %s exists", name)
	}
	t := &topic{name: name}
	err := s.writers.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		const sql = `INSERT INTO pubsub.topics (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name RETURNING id`
		return conn.QueryRow(ctx, sql, name).Scan(&t.id)
	})
	if err != nil {
		return nil, s.unavailable(ctx, fmt.Errorf("create topic: %w", err))
	}
	s.mu.Lock()
	s.topics[name] = t
	s.mu.Unlock()
	return created, nil
}

// GetTopic implements [pubsubpb.PublisherServer].
func (s *Server) GetTopic(_ context.Context, request *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	t, err := s.topic(request.GetTopic())
	if err != nil {
		return nil, err
	}
	return &pubsubpb.Topic{Name: t.name}, nil
}

// The ack deadlines of a subscription, as documented: "The minimum custom deadline
// you can specify is 10 seconds. The maximum custom deadline you can specify is
// 600 seconds (10 minutes). If this parameter is 0, a default value of 10 seconds
// is used".
const (
	defaultAckDeadline = 10
	minAckDeadline     = 10
	maxAckDeadline     = 600
)

// CreateSubscription implements [pubsubpb.SubscriberServer].
func (s *Server) CreateSubscription(ctx context.Context, request *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	name := request.GetName()
	if err := checkName(name, "subscriptions"); err != nil {
		return nil, err
	}
	created := &pubsubpb.Subscription{Name: name, Topic: request.GetTopic(), AckDeadlineSeconds: request.GetAckDeadlineSeconds()}
	if !proto.Equal(request, created) {
		return nil, status.Errorf(codes.Unimplemented, "subscriptions have no settings here but ack_deadline_seconds")
	}
	created.AckDeadlineSeconds = cmp.Or(request.GetAckDeadlineSeconds(), defaultAckDeadline)
	if created.GetAckDeadlineSeconds() < minAckDeadline || created.GetAckDeadlineSeconds() > maxAckDeadline {
		return nil, status.Errorf(codes.InvalidArgument, "ack_deadline_seconds is %d, not %d to %d",
			created.GetAckDeadlineSeconds(), minAckDeadline, maxAckDeadline)
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if _, err := s.subscription(name); err == nil {
		return nil, status.Errorf(codes.AlreadyExists, "subscription %s exists", name)
	}
	of, err := s.topic(created.GetTopic())
	if err != nil {
		return nil, err
	}
	var id int32
	err = s.writers.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		const sql = `
INSERT INTO pubsub.subscriptions (name, topic, ack_deadline_seconds) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET topic = EXCLUDED.topic, ack_deadline_seconds = EXCLUDED.ack_deadline_seconds
RETURNING id`
		return conn.QueryRow(ctx, sql, name, of.id, created.GetAckDeadlineSeconds()).Scan(&id)
	})
	if err != nil {
		return nil, s.unavailable(ctx, fmt.Errorf("create subscription: %w", err))
	}
	s.attach(newSubscription(name, id, of, time.Duration(created.GetAckDeadlineSeconds())*time.Second))
	return created, nil
}

func (s *Server) topic(name string) (*topic, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	return nil, status.Errorf(codes.NotFound, "topic %q does not exist", name)
}

func (s *Server) subscription(name string) (*subscription, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if sub := s.subscriptions[name]; sub != nil {
		return sub, nil
	}
	return nil, status.Errorf(codes.NotFound, "subscription %q does not exist", name)
}
