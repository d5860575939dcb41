package modelstore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// RefreshInterval is how old the knowledge of what is in use may be.
const RefreshInterval = time.Minute

// refreshTimeout bounds a look at the bucket.
const refreshTimeout = 10 * time.Second

// MaxLoaded is how many bytes of artifacts a [Loader] keeps: those of the customers who
// were asked for last.
const MaxLoaded = 128 << 20

// maxLoading is how many customers' models are loaded at a time.
const maxLoading = 4

// Loader gives the models in use and follows what is published. Its methods may
// be called from many goroutines.
type Loader struct {
	bucket *Bucket
	fresh  time.Duration
	clock  func() time.Time
	log    *slog.Logger
	group  sync.WaitGroup // of those who load

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
	refused Manifest  // named in the index, and cannot be loaded
	at      time.Time // it was tried
}

// NewLoader follows a bucket. fresh is how often it looks; 0 means [RefreshInterval].
func NewLoader(bucket *Bucket, fresh time.Duration, clock func() time.Time, log *slog.Logger) *Loader {
	if fresh == 0 {
		fresh = RefreshInterval
	}
	l := &Loader{bucket: bucket, fresh: fresh, clock: clock, log: log, loading: map[int64]chan struct{}{}}
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

// Pair returns the live models of a customer from memory and never waits. What it does
// not have, or what may be older than the refresh interval, is loaded meanwhile. What
// cannot be loaded is logged, and the models before stay live.
func (l *Loader) Pair(ctx context.Context, customer int64) Pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	pair, wanted := l.pair(customer)
	for _, each := range wanted {
		l.start(ctx, each)
	}
	return pair
}

// maxWaits bounds how often Wait waits: it may be for others, and what it waited for may
// have gone again.
const maxWaits = 8

// Wait is Pair, but waits for what is being loaded.
func (l *Loader) Wait(ctx context.Context, customer int64) (pair Pair) {
	for range maxWaits {
		l.mu.Lock()
		var wanted []int64
		pair, wanted = l.pair(customer)
		var done chan struct{}
		for _, each := range wanted {
			done = l.start(ctx, each)
		}
		l.mu.Unlock()
		if done == nil {
			return pair
		}
		select {
		case <-done:
		case <-ctx.Done():
			return pair
		}
	}
	return pair
}

// pair returns what is loaded for a customer, and for whom something has to be. With a
// pair of their own they need no other; the calibration is never another's.
func (l *Loader) pair(customer int64) (pair Pair, wanted []int64) {
	now := l.clock()
	of := func(customer int64) Pair {
		m, named := l.index.Customers[customer]
		kept, _ := l.loaded.Get(customer)
		if outdated := now.Sub(l.checkedAt) >= l.fresh; outdated ||
			(named && kept.Manifest != m && (kept.refused != m || now.Sub(kept.at) >= l.fresh)) {
			wanted = append(wanted, customer)
		}
		return kept.Pair
	}
	pair = of(customer)
	if own := l.index.Customers[customer]; customer != Shared && own.Version() == "" {
		shared := of(Shared)
		pair.Manifest.Detector, pair.Manifest.Forecaster, pair.Manifest.Published = shared.Manifest.Detector, shared.Manifest.Forecaster, shared.Manifest.Published
		pair.Detector, pair.Forecaster = shared.Detector, shared.Forecaster
	}
	return pair, wanted
}

// start loads what the index names for a customer, once at a time. The channel is closed
// at its end.
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

// newer returns the index, which it reads where it may have changed.
func (l *Loader) newer(ctx context.Context) (Index, error) {
	now := l.clock()
	l.mu.Lock()
	index, checked := l.index, l.checkedAt
	l.mu.Unlock()
	if now.Sub(checked) < l.fresh {
		return index, nil
	}
	generation, err := l.bucket.Generation(ctx)
	if err == nil && (generation != index.generation || index.Customers == nil) {
		index, err = l.bucket.Index(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkedAt = now // also of an error: the next look is an interval later
	if err != nil {
		return l.index, err
	}
	l.index = index
	return index, nil
}
