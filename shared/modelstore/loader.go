package modelstore

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// Fresh is how old the knowledge of what is in use may be.
const Fresh = time.Minute

// patience is how long a look at the bucket may hold up whoever makes it.
const patience = 10 * time.Second

// Loader gives the models in use and follows what is published. Its methods may
// be called from many goroutines.
type Loader struct {
	bucket *Bucket
	fresh  time.Duration
	clock  func() time.Time
	log    *slog.Logger

	pair    atomic.Pointer[Pair]
	looked  atomic.Int64 // Unix nanoseconds of the last look
	looking atomic.Bool
	fault   string // of the last look, guarded by looking
}

// NewLoader follows a bucket. fresh is how often it looks; 0 means [Fresh].
func NewLoader(bucket *Bucket, fresh time.Duration, clock func() time.Time, log *slog.Logger) *Loader {
	if fresh == 0 {
		fresh = Fresh
	}
	l := &Loader{bucket: bucket, fresh: fresh, clock: clock, log: log}
	l.pair.Store(&Pair{})
	return l
}

// Pair returns the models in use. When it is time to look for newer ones the
// caller does so, others go on with what there is; so no look happens while
// nobody asks, and none needs a goroutine. What cannot be loaded is logged, and
// the models before stay in use.
func (l *Loader) Pair(ctx context.Context) Pair {
	now := l.clock().UnixNano()
	if now-l.looked.Load() >= int64(l.fresh) && l.looking.CompareAndSwap(false, true) {
		l.look(ctx)
		l.looked.Store(now)
		l.looking.Store(false)
	}
	return *l.pair.Load()
}

func (l *Loader) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	before := l.pair.Load().Manifest
	next, err := l.newer(ctx, before)
	switch {
	case err != nil:
		if l.fault != err.Error() {
			l.fault = err.Error()
			l.log.ErrorContext(ctx, "models cannot be loaded, those before stay in use", "error", l.fault, "in_use", before.Version())
		}
	case next != nil:
		l.fault = ""
		l.pair.Store(next)
		l.log.InfoContext(ctx, "models loaded", "model_version", next.Manifest.Version())
	default:
		l.fault = ""
	}
}

// newer loads what was published after a manifest; nil for nothing.
func (l *Loader) newer(ctx context.Context, before Manifest) (*Pair, error) {
	generation, err := l.bucket.Generation(ctx)
	if errors.Is(err, ErrNone) || (err == nil && generation == before.generation) {
		return nil, nil //nolint:nilnil // nothing newer is no error
	}
	if err != nil {
		return nil, err
	}
	manifest, err := l.bucket.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	pair, err := l.bucket.Load(ctx, manifest)
	if err != nil {
		return nil, err
	}
	return &pair, nil
}
