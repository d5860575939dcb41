// Package sensorcache caches the sensor status of nodes: whether a customer
// owns the sensor, whether it was deleted, the thresholds and rules of its owner, and
// whether they remember something.
//
// functions/ingest asks whether a sensor is deleted, and needs the current
// answer. functions/detect asks for the whole status, and a few seconds of delay
// do no harm. Neither makes a query per reading: lookups that arrive while a
// query is in flight share the next query, and owned sensors are cached.
package sensorcache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// Bounds of what is cached.
const (
	// MaxAge is how old a cached status may be: a changed threshold must reach
	// detection within 15 seconds, and the query needs the rest of that time.
	MaxAge = 10 * time.Second
	// MaxStale is how old a cached status may be while the database is down.
	MaxStale = 10 * time.Minute
	// RefreshTimeout bounds the query that replaces a stale status: a database
	// that hangs must not delay every reading.
	RefreshTimeout = time.Second
	// lookupTimeout bounds every query. Nobody may wait for it any more.
	lookupTimeout = 5 * time.Second
	// Capacity is how many statuses are cached.
	Capacity = 100_000
)

// Source reads the status of many nodes at once. Those that were never a sensor
// are absent.
type Source interface {
	SensorStatuses(ctx context.Context, nodes []reading.Node) (map[reading.Node]store.SensorStatus, error)
}

// Cache answers from memory where it may, and from the metadata store otherwise.
type Cache struct {
	lookups *coalesce.Group[reading.Node, store.SensorStatus]
	cache   *expirable.LRU[reading.Node, entry]
	clock   func() time.Time
}

type entry struct {
	status store.SensorStatus
	asked  time.Time // when the query began
}

// New returns a cache over the metadata store.
func New(source Source, clock func() time.Time) *Cache {
	return &Cache{
		lookups: coalesce.New(func(ctx context.Context, nodes []reading.Node) ([]store.SensorStatus, error) {
			return query(ctx, source, nodes)
		}, coalesce.Options[reading.Node]{}),
		cache: expirable.NewLRU[reading.Node, entry](Capacity, nil, MaxStale),
		clock: clock,
	}
}

// query returns the status of each node. Several callers may ask for the same.
func query(ctx context.Context, source Source, nodes []reading.Node) ([]store.SensorStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	distinct := slices.SortedFunc(slices.Values(nodes), func(a, b reading.Node) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.ID, b.ID))
	})
	found, err := source.SensorStatuses(ctx, slices.Compact(distinct))
	if err != nil {
		return nil, err
	}
	statuses := make([]store.SensorStatus, len(nodes))
	for i, node := range nodes {
		statuses[i] = found[node]
	}
	return statuses, nil
}

// Deleted reports whether a node's sensor was deleted and not created again. It
// never answers from the cache.
func (c *Cache) Deleted(ctx context.Context, node reading.Node) (bool, error) {
	status, err := c.lookups.Do(ctx, node)
	if err != nil {
		return false, fmt.Errorf("sensor status of %s: %w", node.ID, err)
	}
	return status.Deleted, nil
}

// Status returns a node's sensor status. It is at most [MaxAge] old, or at most
// [MaxStale] while the database does not answer within [RefreshTimeout]. Only
// owned sensors are cached: a sensor that was just created again must lose no
// alert.
func (c *Cache) Status(ctx context.Context, node reading.Node) (store.SensorStatus, error) {
	cached, ok := c.cache.Get(node)
	if ok && c.clock().Sub(cached.asked) < MaxAge {
		return cached.status, nil
	}
	asked := c.clock() // before the query: what changes during the query is not in its result
	queryCtx := ctx
	if ok {
		var cancel context.CancelFunc
		queryCtx, cancel = context.WithTimeout(ctx, RefreshTimeout)
		defer cancel()
	}
	status, err := c.lookups.Do(queryCtx, node)
	if err != nil {
		if ok && ctx.Err() == nil {
			return cached.status, nil
		}
		return store.SensorStatus{}, fmt.Errorf("sensor status of %s: %w", node.ID, err)
	}
	if status.Owned {
		c.cache.Add(node, entry{status: status, asked: asked})
	} else {
		c.cache.Remove(node)
	}
	return status, nil
}
