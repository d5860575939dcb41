package pgpubsub

import (
	"context"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// pullWait is how long a pull waits for the first message, unless it is to
	// return immediately.
	pullWait = 5 * time.Second
	// maxPulled and pullBytes bound an answer: "The Pub/Sub system may return fewer
	// than the number specified." A client whose connection is not of the library's
	// making takes no more than 4 MiB.
	maxPulled = 1000
	pullBytes = 3 << 20
)

// Pull implements [pubsubpb.SubscriberServer]. An empty answer means that there
// was nothing: a page of the backlog is waited for, however immediately the
// caller wants to know.
func (s *Server) Pull(ctx context.Context, request *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	sub, err := s.subscription(request.GetSubscription())
	if err != nil {
		return nil, err
	}
	most := int(request.GetMaxMessages())
	if most <= 0 {
		return nil, status.Errorf(codes.InvalidArgument, "max_messages is %d, and must be positive", most)
	}
	most = min(most, maxPulled)
	var end <-chan time.Time
	if !request.GetReturnImmediately() { //nolint:staticcheck // deprecated for production, where nothing pulls
		timer := time.NewTimer(pullWait)
		defer timer.Stop()
		end = timer.C
	}
	for {
		found, next := s.poll(sub, most, end != nil)
		switch {
		case len(found) > 0:
			return &pubsubpb.PullResponse{ReceivedMessages: found}, nil
		case next.read != nil:
			err := s.read(ctx, sub, next.read)
			sub.end(next.read, err, func(id int64) bool { return s.settler.settling(id, sub.id) })
			if err != nil {
				return nil, s.unavailable(ctx, err)
			}
			continue
		case next.page == nil && end == nil:
			return &pubsubpb.PullResponse{}, nil
		}
		select {
		case <-next.page: // of another caller
		case <-next.wake:
		case <-next.expiry:
		case <-end:
			return &pubsubpb.PullResponse{}, nil
		case <-s.closing:
			return &pubsubpb.PullResponse{}, nil
		case <-ctx.Done():
			return nil, contextError(ctx)
		}
	}
}

// step is what a pull does next that has found nothing.
type step struct {
	read   *page           // read this page
	page   <-chan struct{} // or wait until another caller has read his
	wake   <-chan struct{} // or for a message
	expiry <-chan time.Time
}

// poll leases what is ready.
func (s *Server) poll(sub *subscription, most int, wait bool) ([]*pubsubpb.ReceivedMessage, step) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	now := s.config.Clock()
	sub.expire(now)
	if found := sub.take(now, most, pullBytes, func() int64 { return s.leases.Add(1) }); len(found) > 0 {
		return found, step{}
	}
	if sub.page != nil {
		return nil, step{page: sub.page.done}
	}
	if p := sub.begin(); p != nil || !wait {
		return nil, step{read: p}
	}
	if sub.wake == nil {
		sub.wake = make(chan struct{})
	}
	next := step{wake: sub.wake}
	if len(sub.leased) > 0 {
		next.expiry = time.After(sub.leased[0].deadline.Sub(now))
	}
	return nil, next
}

// Acknowledge implements [pubsubpb.SubscriberServer]. Ids that have been used, or
// whose lease has ended and another one has begun, are ignored, as documented:
// "Acknowledging a message more than once will not result in an error".
func (s *Server) Acknowledge(ctx context.Context, request *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	sub, err := s.subscription(request.GetSubscription())
	if err != nil {
		return nil, err
	}
	ids, err := parseAckIDs(request.GetAckIds())
	if err != nil {
		return nil, err
	}
	if err := s.settler.admit(ctx); err != nil {
		return nil, s.unavailable(ctx, err)
	}
	settled := make([]*delivery, 0, len(ids))
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, id := range ids {
		if d := sub.settle(id); d != nil {
			settled = append(settled, d)
		}
	}
	s.settler.add(sub, settled) // under the lock: no read of the table may find them before
	return &emptypb.Empty{}, nil
}

// ModifyAckDeadline implements [pubsubpb.SubscriberServer].
func (s *Server) ModifyAckDeadline(_ context.Context, request *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	sub, err := s.subscription(request.GetSubscription())
	if err != nil {
		return nil, err
	}
	seconds := request.GetAckDeadlineSeconds()
	if seconds < 0 || seconds > maxAckDeadline {
		return nil, status.Errorf(codes.InvalidArgument, "ack_deadline_seconds is %d, not 0 to %d", seconds, maxAckDeadline)
	}
	ids, err := parseAckIDs(request.GetAckIds())
	if err != nil {
		return nil, err
	}
	now := s.config.Clock()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, id := range ids {
		sub.extend(id, now, time.Duration(seconds)*time.Second)
	}
	return &emptypb.Empty{}, nil
}

// ackID names a message and the lease under which it was delivered.
type ackID struct{ message, lease int64 }

func (a ackID) String() string {
	return strconv.FormatInt(a.message, 10) + ":" + strconv.FormatInt(a.lease, 10)
}

func parseAckIDs(texts []string) ([]ackID, error) {
	if len(texts) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "the request has no ack id")
	}
	ids := make([]ackID, len(texts))
	for i, text := range texts {
		message, lease, _ := strings.Cut(text, ":")
		var errMessage, errLease error
		ids[i].message, errMessage = strconv.ParseInt(message, 10, 64)
		ids[i].lease, errLease = strconv.ParseInt(lease, 10, 64)
		if errMessage != nil || errLease != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%.100q is not an ack id", text)
		}
	}
	return ids, nil
}
