package pgpubsub

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"coldaisle.dev/shared/coalesce"
)

// One INSERT takes so many requests, which have less messages than a block has
// ids, and so many bytes of them.
const (
	batchRequests = 500
	batchBytes    = 8 << 20
)

// The limits that Google documents at
// https://cloud.google.com/pubsub/quotas#resource_limits: "Publish request: 10 MB
// (total size), 1,000 messages. Message: Message size (the data field): 10 MB.
// Attributes per message: 100. Attribute key size: 256 bytes. Attribute value
// size: 1024 bytes".
const (
	maxRequestBytes   = 10_000_000
	maxRequestCount   = 1000
	maxAttributes     = 100
	maxAttributeKey   = 256
	maxAttributeValue = 1024
)

// publication is a publish request whose messages are encoded.
type publication struct {
	topic    *topic
	messages []*pubsubpb.PubsubMessage
	content  [][]byte
	size     int
}

// Publish implements [pubsubpb.PublisherServer]. It answers when the messages are
// committed.
func (s *Server) Publish(ctx context.Context, request *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	if err := checkPublish(request); err != nil {
		return nil, err
	}
	p := &publication{messages: request.GetMessages()}
	var err error
	if p.topic, err = s.topic(request.GetTopic()); err != nil {
		return nil, err
	}
	p.content = make([][]byte, len(p.messages))
	for i, m := range p.messages {
		m.MessageId, m.PublishTime = "", nil // "must not be populated by the publisher"
		if p.content[i], err = proto.Marshal(m); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "message %d: %v", i, err)
		}
		p.size += len(p.content[i])
	}
	if _, err := s.publishes.Do(ctx, p); err != nil {
		return nil, s.unavailable(ctx, err)
	}
	response := &pubsubpb.PublishResponse{MessageIds: make([]string, len(p.messages))}
	for i, m := range p.messages {
		response.MessageIds[i] = m.GetMessageId()
	}
	return response, nil
}

// checkPublish refuses, as a whole, what the service would refuse.
func checkPublish(request *pubsubpb.PublishRequest) error {
	if n := len(request.GetMessages()); n == 0 || n > maxRequestCount {
		return status.Errorf(codes.InvalidArgument, "the request has %d messages, not 1 to %d", n, maxRequestCount)
	}
	if n := proto.Size(request); n > maxRequestBytes {
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes, more than %d", n, maxRequestBytes)
	}
	for i, m := range request.GetMessages() {
		if err := checkMessage(m); err != nil {
			return status.Errorf(codes.InvalidArgument, "message %d: %v", i, err)
		}
	}
	return nil
}

var errEmpty = errors.New("a message must contain either a non-empty data field or at least one attribute")

func checkMessage(m *pubsubpb.PubsubMessage) error {
	attributes := m.GetAttributes()
	if len(m.GetData()) == 0 && len(attributes) == 0 {
		return errEmpty
	}
	if len(attributes) > maxAttributes {
		return fmt.Errorf("it has %d attributes, more than %d", len(attributes), maxAttributes)
	}
	for key, value := range attributes {
		if len(key) > maxAttributeKey {
			return fmt.Errorf("attribute key %.30q… is too long: %d bytes, more than %d", key, len(key), maxAttributeKey)
		}
		if len(value) > maxAttributeValue {
			return fmt.Errorf("the value of attribute %q is too long: %d bytes, more than %d", key, len(value), maxAttributeValue)
		}
	}
	return nil
}

// insertSQL may run twice for the same messages.
const insertSQL = `
INSERT INTO pubsub.messages (topic, id, waiting, publish_time, content)
SELECT topic, id, waiting::integer[], publish_time, content
FROM unnest($1::integer[], $2::bigint[], $3::text[], $4::timestamptz[], $5::bytea[]) AS m (topic, id, waiting, publish_time, content)
ON CONFLICT DO NOTHING`

// rows are the columns of an INSERT.
type rows struct {
	topics  []int32
	ids     []int64
	waiting []string
	times   []time.Time
	content [][]byte
}

// insert stores what several callers publish, and hands it to the subscriptions.
func (s *Server) insert(ctx context.Context, batch []*publication) ([]struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	count := 0
	for _, p := range batch {
		count += len(p.messages)
	}
	now := s.config.Clock().UTC().Truncate(time.Microsecond) // what the column keeps
	var r rows
	committed := make([]deliveries, len(batch))
	place, err := s.writers.begin(ctx, int64(count), func(next int64) {
		for i, p := range batch {
			committed[i] = number(p, next, now, &r)
			next += int64(len(p.messages))
		}
	})
	if err != nil {
		return nil, err
	}
	if len(r.ids) > 0 {
		err = s.writers.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, insertSQL, r.topics, r.ids, r.waiting, r.times, r.content)
			return err //nolint:wrapcheck // for write to judge, wrapped below
		})
	}
	s.writers.end(place, func() {
		for _, d := range committed {
			if err == nil {
				d.hand()
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("insert %d messages: %w", len(r.ids), err)
	}
	return make([]struct{}, len(batch)), nil
}

// deliveries are the messages of a publication for the subscriptions of its
// topic, as those were when it was numbered.
type deliveries struct {
	messages      []*pubsubpb.PubsubMessage
	first         int64
	sizes         [][]byte
	waiting       []int32
	subscriptions []*subscription
}

// number gives messages their ids and their publish time, and their rows where
// somebody subscribes.
func number(p *publication, first int64, now time.Time, r *rows) deliveries {
	d := deliveries{messages: p.messages, first: first, sizes: p.content}
	if found := p.topic.subscriptions.Load(); found != nil {
		d.subscriptions = *found
	}
	for _, sub := range d.subscriptions {
		d.waiting = append(d.waiting, sub.id)
	}
	waiting := array(d.waiting)
	for i, m := range p.messages {
		id := first + int64(i)
		identify(m, id, now)
		if len(d.subscriptions) > 0 {
			r.topics, r.ids = append(r.topics, p.topic.id), append(r.ids, id)
			r.waiting, r.times = append(r.waiting, waiting), append(r.times, now)
			r.content = append(r.content, p.content[i])
		}
	}
	return d
}

// hand gives committed messages to every subscription.
func (d deliveries) hand() {
	for _, sub := range d.subscriptions {
		each := make([]*delivery, len(d.messages))
		for i, m := range d.messages {
			each[i] = newDelivery(d.first+int64(i), d.waiting, m, len(d.sizes[i]))
		}
		sub.publish(each)
	}
}

// identify sets what the service adds to a message.
func identify(m *pubsubpb.PubsubMessage, id int64, published time.Time) {
	m.MessageId = strconv.FormatInt(id, 10)
	m.PublishTime = timestamppb.New(published)
}

// unavailable is the answer to a caller who should try again.
func (s *Server) unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if !errors.Is(err, coalesce.ErrClosed) {
		s.config.Log.WarnContext(ctx, "the database does not answer Pub/Sub", "error", err.Error())
	}
	return status.Errorf(codes.Unavailable, "%v", err)
}

// contextError is the answer to a caller whose context has ended.
func contextError(ctx context.Context) error {
	return status.Errorf(status.FromContextError(ctx.Err()).Code(), "%v", ctx.Err())
}
