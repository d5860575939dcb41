package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// attempts records the last failed request of a Pub/Sub client. The client's library retries
// until its timeout and then returns "context deadline exceeded", which hides whether the
// name did not resolve or the connection was refused.
type attempts struct {
	last atomic.Pointer[error] // to nil after a request that was answered
}

// intercept is a [grpc.UnaryClientInterceptor].
func (a *attempts) intercept(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, conn, options...)
	if err != nil && status.Code(err) == codes.DeadlineExceeded {
		return err // the cause is an earlier one, if there is one
	}
	a.last.Store(&err)
	return err
}

// explain adds the error of the last request to one that is only a timeout.
func (a *attempts) explain(err error) error {
	if last := a.last.Load(); last != nil && *last != nil && isTimeout(err) {
		return fmt.Errorf("%w: %w", *last, err)
	}
	return err
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// errorKind names the cause of a failed publish in one word, for logs and metrics.
func errorKind(err error) string {
	if known, ok := errors.AsType[interface {
		error
		Kind() string
	}](err); ok {
		return known.Kind()
	}
	text, code := err.Error(), status.Code(err)
	switch {
	case strings.Contains(text, "no such host"), strings.Contains(text, "server misbehaving"), strings.Contains(text, "produced zero addresses"):
		return "dns"
	case strings.Contains(text, "connection refused"):
		return "refused"
	case strings.Contains(text, "network is unreachable"), strings.Contains(text, "no route to host"):
		return "network"
	case strings.Contains(text, "certificate"):
		return "certificate"
	case code == codes.PermissionDenied:
		return "permission"
	case code == codes.Unauthenticated, strings.Contains(text, "credentials"):
		return "credentials"
	case code == codes.ResourceExhausted:
		return "quota"
	case code == codes.NotFound:
		return "topic"
	case code == codes.InvalidArgument, errors.Is(err, ErrRefused):
		return "message"
	case code == codes.Unavailable:
		return "unavailable"
	case isTimeout(err):
		return "timeout"
	default:
		return "other"
	}
}
