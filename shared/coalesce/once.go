package coalesce

import (
	"context"
	"fmt"
	"sync"
)

// Once is a value that the first caller opens and all callers share: clients, a
// connection. Callers that arrive meanwhile wait. After a failure the next caller
// opens. Its methods may be called from many goroutines.
type Once[T any] struct {
	open func(context.Context) (*T, error)
	use  func(*T)

	opening chan struct{} // holds a token while a caller opens
	mu      sync.Mutex
	value   *T
}

// NewOnce returns a value that open makes, with the context of whoever opens it.
// Unless it is nil, use is called with what each Get returns, before any other
// call can remove that value: use counts who must leave it before it is closed.
func NewOnce[T any](open func(context.Context) (*T, error), use func(*T)) *Once[T] {
	return &Once[T]{open: open, use: use, opening: make(chan struct{}, 1)}
}

// Get returns the value, opened if need be.
func (o *Once[T]) Get(ctx context.Context) (*T, error) {
	if value := o.Peek(); value != nil {
		return value, nil
	}
	select {
	case o.opening <- struct{}{}:
		defer func() { <-o.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the opening: %w", ctx.Err())
	}
	if value := o.Peek(); value != nil {
		return value, nil
	}
	value, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.value = value
	o.used(value)
	return value, nil
}

// Peek returns the value if it is open, else nil, and opens nothing.
func (o *Once[T]) Peek() *T {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.value != nil {
		o.used(o.value)
	}
	return o.value
}

func (o *Once[T]) used(value *T) {
	if o.use != nil {
		o.use(value)
	}
}

// Remove removes a broken value, and reports whether it was still there: the next Get
// opens another. Of several callers one gets true, and closes the value.
func (o *Once[T]) Remove(value *T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.value == nil || o.value != value {
		return false
	}
	o.value = nil
	return true
}

// Take removes the value and returns it to whoever closes it; nil when there is none.
func (o *Once[T]) Take() *T {
	o.mu.Lock()
	defer o.mu.Unlock()
	value := o.value
	o.value = nil
	return value
}
