// Package pause waits.
package pause

import (
	"context"
	"time"
)

// For waits for d. When the context ends sooner, it returns the context's error.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() //nolint:wrapcheck // callers tell a cancelled context by identity
}
