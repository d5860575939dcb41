// Package sensorcache caches the sensor status of nodes: the owner, whether the sensor was
// deleted, the owner's thresholds and rules, and whether these have memory.
//
// functions/detect uses it, so that it makes no query per reading: lookups that arrive while
// a query is in flight share the next query, and owned sensors are cached. functions/ingest
// needs the current status, and reads it in the transaction that stores the reading.
package sensorcache

import (
	"context"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
)

// Bounds of the cache.
const (
	// MaxAge is how old a cached status may be: a changed threshold must reach
	// detection within 15 seconds, and the query needs the rest of that time.
	MaxAge = 10 * time.Second
	// MaxStale is how old a cached status may be while the database is down. Then lookups fail:
	// corrections are added five minutes before they begin, so that no older status is used.
	MaxStale = time.Minute
	// RefreshTimeout bounds the query that replaces a stale status: a database
	// that hangs must not delay every reading.
	RefreshTimeout = time.Second
	// lookupTimeout bounds every query; its callers may have left.
	lookupTimeout = 5 * time.Second
	// Capacity is how many statuses are cached.
	Capacity = 100_000
)

// Source reads the status of many nodes at once, of which several may be the same. Those that
// were never a sensor are absent.
type Source interface {
	SensorStatuses(ctx context.Context, nodes []reading.Node) (map[reading.Node]pipeline.SensorStatus, error)
}

// Cache answers from memory where it may, and from the metadata store otherwise.
type Cache struct {
	lookups *coalesce.Group[reading.Node, pipeline.SensorStatus]
	cache   *lru.Cache[reading.Node, entry]
	clock   func() time.Time
}

type entry struct {
	status    pipeline.SensorStatus
	queriedAt time.Time // when the query began
}

// New returns a cache over the metadata store, whose queries wait for further nodes.
func New(source Source, wait coalesce.Wait, clock func() time.Time) *Cache {
	cache, _ := lru.New[reading.Node, entry](Capacity) // the library refuses only sizes below 1
	return &Cache{
		lookups: coalesce.New(func(ctx context.Context, nodes []reading.Node) (statuses []pipeline.SensorStatus, err error) {
			defer parallel.Recover(&err)
			ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
			defer cancel()
			found, err := source.SensorStatuses(ctx, nodes)
			for _, node := range nodes {
				statuses = append(statuses, found[node])
			}
			return statuses, err
		}, coalesce.Options[reading.Node]{Wait: wait}),
		cache: cache,
		clock: clock,
	}
}

// Remember notes in the cached status of a node that its rules may have memory from now
// on, so that its next readings are judged without waiting for [MaxAge].
func (c *Cache) Remember(node reading.Node) {
	if cached, ok := c.cache.Get(node); ok {
		cached.status.Remembers = true
		c.cache.Add(node, cached)
	}
}

// Status returns a node's sensor status. It is at most [MaxAge] old, or at most
// [MaxStale] while the database does not answer within [RefreshTimeout]. Only
// owned sensors are cached: a sensor that was just created again must lose no
// alert.
func (c *Cache) Status(ctx context.Context, node reading.Node) (pipeline.SensorStatus, error) {
	cached, ok := c.cache.Get(node)
	if ok && c.clock().Sub(cached.queriedAt) < MaxAge {
		return cached.status, nil
	}
	queriedAt := c.clock() // before the query, whose result lacks changes made meanwhile
	queryCtx := ctx
	if ok {
		var cancel context.CancelFunc
		queryCtx, cancel = context.WithTimeout(ctx, RefreshTimeout)
		defer cancel()
	}
	status, err := c.lookups.Do(queryCtx, node)
	if err != nil {
		if ok && ctx.Err() == nil && c.clock().Sub(cached.queriedAt) <= MaxStale {
			return cached.status, nil
		}
		return pipeline.SensorStatus{}, fmt.Errorf("sensor status of %s: %w", node.ID, err)
	}
	if status.Owned {
		c.cache.Add(node, entry{status: status, queriedAt: queriedAt})
	} else {
		c.cache.Remove(node)
	}
	return status, nil
}
