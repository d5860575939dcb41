package modelstore

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// RefreshInterval bounds how long the index is served before it is read again.
const RefreshInterval = time.Minute

// refreshTimeout bounds a look at the bucket.
const refreshTimeout = 10 * time.Second

// MaxLoaded bounds the artifacts that a [Loader] caches, in bytes: those of the customers
// requested last. Without it each reading would read its models from object storage.
const MaxLoaded = 128 << 20

// maxLoading is how many customers' models are loaded at a time.
const maxLoading = 4

// Loader caches the models in use and follows publications. Its methods may be called from many goroutines.
type Loader struct {
	bucket *Bucket
	fresh  time.Duration
	clock  func() time.Time
	log    *slog.Logger
	group  sync.WaitGroup // of loads

	mu        sync.Mutex
	index     Index
	checkedAt time.Time // of the index
	loaded    *simplelru.LRU[int64, loadedPair]
	bytes     int // of all loaded
	loading   map[int64]chan struct{}
}

type loadedPair struct {
	Pair

	bytes   int
	refused Manifest  // named in the index, but cannot be loaded
	at      time.Time // when that was tried
}

// NewLoader follows a bucket. fresh is how long the index is served; 0 means [RefreshInterval].
func NewLoader(bucket *Bucket, fresh time.Duration, clock func() time.Time, log *slog.Logger) *Loader {
	l := &Loader{bucket: bucket, fresh: cmp.Or(fresh, RefreshInterval), clock: clock, log: log, loading: map[int64]chan struct{}{}}
	var err error
	if l.loaded, err = simplelru.NewLRU(int(^uint(0)>>1), func(_ int64, p loadedPair) { l.bytes -= p.bytes }); err != nil {
		panic(err) // only of a size below one
	}
	return l
}

// Close waits until nothing is being loaded.
func (l *Loader) Close() error {
	l.group.Wait()
	return nil
}

// Pair returns the live models of a customer from memory and never waits. Models that are
// missing, or may be older than the refresh interval, are loaded meanwhile. A failure to
// load is logged, and the models before stay live.
func (l *Loader) Pair(ctx context.Context, customer int64) Pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	pair, outdated := l.pair(customer)
	if outdated {
		l.start(ctx, customer)
	}
	return pair
}

// maxWaits bounds how often Wait waits: a load may be another customer's, and a loaded pair
// may have been evicted again.
const maxWaits = 8

// Wait is Pair, but waits for the load.
func (l *Loader) Wait(ctx context.Context, customer int64) (pair Pair) {
	for range maxWaits {
		l.mu.Lock()
		var outdated bool
		if pair, outdated = l.pair(customer); !outdated {
			l.mu.Unlock()
			return pair
		}
		done := l.start(ctx, customer)
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return pair
		}
	}
	return pair
}

// pair returns a customer's loaded models, and whether they may be outdated.
func (l *Loader) pair(customer int64) (pair Pair, outdated bool) {
	now := l.clock()
	m, named := l.index.Customers[customer]
	kept, _ := l.loaded.Get(customer)
	outdated = now.Sub(l.checkedAt) >= l.fresh || (named && kept.Manifest != m && (kept.refused != m || now.Sub(kept.at) >= l.fresh))
	return kept.Pair, outdated
}

// start loads the models that the index names for a customer, unless that is under way. The
// channel is closed at the end of the load.
func (l *Loader) start(ctx context.Context, customer int64) chan struct{} {
	if done, ok := l.loading[customer]; ok {
		return done
	}
	if len(l.loading) >= maxLoading { // the next message asks again
		for _, done := range l.loading {
			return done
		}
	}
	done := make(chan struct{})
	l.loading[customer] = done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	l.group.Go(func() {
		defer cancel()
		l.refresh(ctx, customer)
		l.mu.Lock()
		delete(l.loading, customer)
		l.mu.Unlock()
		close(done)
	})
	return done
}

func (l *Loader) refresh(ctx context.Context, customer int64) {
	index, err := l.newer(ctx)
	m := index.Customers[customer]
	l.mu.Lock()
	kept, _ := l.loaded.Get(customer)
	l.mu.Unlock()
	next := kept
	if err == nil && kept.Manifest != m {
		if next.Pair, next.bytes, err = l.bucket.Load(ctx, customer, m); err != nil {
			next = kept
			next.refused, next.at = m, l.clock()
		}
	}
	if err != nil {
		l.log.ErrorContext(ctx, "models cannot be loaded, those before stay in use",
			"customer_id", customer, "error", err.Error(), "in_use", kept.Manifest.Version())
	} else if next.Manifest != kept.Manifest {
		l.log.InfoContext(ctx, "models loaded", "customer_id", customer, "model_version", m.Version(), "calibration", m.Calibration)
	}
	if next == kept {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, _ := l.loaded.Peek(customer)
	l.bytes += next.bytes - before.bytes
	l.loaded.Add(customer, next)
	for l.bytes > MaxLoaded && l.loaded.Len() > 1 {
		l.loaded.RemoveOldest()
	}
}

// newer returns the index, at most an interval old.
func (l *Loader) newer(ctx context.Context) (Index, error) {
	now := l.clock()
	l.mu.Lock()
	cached, checked := l.index, l.checkedAt
	l.mu.Unlock()
	if now.Sub(checked) < l.fresh {
		return cached, nil
	}
	index, err := l.bucket.Index(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkedAt = now // even after an error: the next request is an interval later
	if err == nil {
		l.index = index
	}
	return l.index, err
}
