package modelstore

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// RefreshInterval is how old the knowledge of what is in use may be.
const RefreshInterval = time.Minute

// refreshTimeout is how long a look at the bucket may hold up whoever makes it.
const refreshTimeout = 10 * time.Second

// Loader gives the models in use and follows what is published. Its methods may
// be called from many goroutines.
type Loader struct {
	bucket *Bucket
	fresh  time.Duration
	clock  func() time.Time
	log    *slog.Logger

	live      atomic.Pointer[Pair]
	checkedAt atomic.Int64 // Unix nanoseconds of the last look
	checking  atomic.Bool
	lastErr   string // of the last look, guarded by looking
}

// NewLoader follows a bucket. fresh is how often it looks; 0 means [RefreshInterval].
func NewLoader(bucket *Bucket, fresh time.Duration, clock func() time.Time, log *slog.Logger) *Loader {
	if fresh == 0 {
		fresh = RefreshInterval
	}
	l := &Loader{bucket: bucket, fresh: fresh, clock: clock, log: log}
	l.live.Store(&Pair{})
	return l
}

// Pair returns the live models. When the refresh interval has passed, the caller
// refreshes them, and concurrent callers get the loaded ones meanwhile; so nothing
// is refreshed while nobody asks, and no goroutine is needed. A failed refresh is
// logged and the loaded models stay live.
func (l *Loader) Pair(ctx context.Context) Pair {
	now := l.clock().UnixNano()
	if now-l.checkedAt.Load() >= int64(l.fresh) && l.checking.CompareAndSwap(false, true) {
		l.refresh(ctx)
		l.checkedAt.Store(now)
		l.checking.Store(false)
	}
	return *l.live.Load()
}

func (l *Loader) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	before := l.live.Load().Manifest
	next, err := l.loadNewer(ctx, before)
	switch {
	case err != nil:
		if l.lastErr != err.Error() {
			l.lastErr = err.Error()
			l.log.ErrorContext(ctx, "models cannot be loaded, those before stay in use", "error", l.lastErr, "in_use", before.Version())
		}
	case next != nil:
		l.lastErr = ""
		l.live.Store(next)
		l.log.InfoContext(ctx, "models loaded", "model_version", next.Manifest.Version())
	default:
		l.lastErr = ""
	}
}

// loadNewer loads what was published after a manifest; nil for nothing.
func (l *Loader) loadNewer(ctx context.Context, before Manifest) (*Pair, error) {
	generation, err := l.bucket.Generation(ctx)
	if errors.Is(err, ErrNoManifest) || (err == nil && generation == before.generation) {
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
