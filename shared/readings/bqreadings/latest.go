package bqreadings

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// lookbacks are the ranges that are searched for a latest reading, one after
// another. Almost every node reported within the last day, and a query of one day
// costs least.
func lookbacks() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{day, 30 * day, beginning}
}

// beginning stands for a search of everything: no reading is older than the
// year 2000.
const beginning time.Duration = 0

const (
	// latestTimeout bounds a query that others wait for too, and that therefore
	// does not end with the request that started it.
	latestTimeout = 30 * time.Second
	// fullScanTTL is how long the result of a full scan is cached: only a late
	// delivery can change it, and the scan costs most.
	fullScanTTL = time.Hour
	// maxCached bounds the cached nodes, at some 200 bytes each.
	maxCached = 50_000
)

// Latest returns the newest visible reading of each node that has one. A cached answer is at most as old as the configured time to live.
func (s *Store) Latest(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, error) {
	return s.latest.get(ctx, nodes)
}

// queryLatest asks BigQuery for nodes, and looks further back for those without a
// reading. fullScans says for which of them everything was searched.
func (s *Store) queryLatest(ctx context.Context, nodes []readings.NodeRef, fullScanned func(readings.NodeRef) (latestReading, bool)) (map[string]reading.Reading, map[string]bool, error) {
	now := s.clock()
	newest, fullScans := make(map[string]reading.Reading, len(nodes)), map[string]bool{}
	until := readings.LatestEnd(now)
	missing, searched := nodes, until
	for _, lookback := range lookbacks() {
		from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		if lookback != beginning {
			from = now.Add(-lookback)
		}
		var asked []readings.NodeRef
		for _, node := range missing {
			if lookback == beginning {
				fullScans[node.ID] = true
				if before, ok := fullScanned(node); ok {
					if before.exists {
						newest[node.ID] = before.reading
					}
					continue
				}
			}
			if _, ok := visibleFrom(node, time.Time{}, searched); ok { // else nothing of it is further back
				asked = append(asked, node)
			}
		}
		if len(asked) == 0 {
			continue
		}
		if err := s.latestSince(ctx, asked, from, until, newest); err != nil {
			return nil, nil, err
		}
		searched = from
		var still []readings.NodeRef
		for _, node := range missing {
			if _, ok := newest[node.ID]; !ok {
				still = append(still, node)
			}
		}
		if missing = still; len(missing) == 0 {
			break
		}
	}
	return newest, fullScans, nil
}

func (s *Store) latestSince(ctx context.Context, nodes []readings.NodeRef, from, until time.Time, into map[string]reading.Reading) error {
	visible := spansOf(nodes...)
	found := rows[readingRow](ctx, s, "latest", visible.with(
		parameter("ids", visible.ids), parameter("from", from), parameter("until", until))...)
	for row, err := range found {
		if err != nil {
			return err
		}
		into[row.NodeID] = row.reading()
	}
	return nil
}

// latestReading is a node's newest reading, if it has one.
type latestReading struct {
	reading reading.Reading
	exists  bool
}

// cacheEntry is a node's entry in the cache. It is being fetched until done is
// closed.
type cacheEntry struct {
	done    chan struct{}
	latest  latestReading
	err     error
	expires time.Time // zero while being fetched
}

// fullScanEntry is what a search of everything has found.
type fullScanEntry struct {
	latest  latestReading
	expires time.Time
}

// fetchLatest reads the latest readings of several nodes. fullScanned returns what
// an earlier full scan found for a node.
type fetchLatest func(ctx context.Context, nodes []readings.NodeRef, fullScanned func(readings.NodeRef) (latestReading, bool)) (map[string]reading.Reading, map[string]bool, error)

// latestCache caches latest readings for some seconds. Concurrent callers that ask
// for the same node share one query. It is no [coalesce.Group]: see
// docs/decisions/0017-coalescing.md.
type latestCache struct {
	ttl   time.Duration
	clock func() time.Time
	fetch fetchLatest

	mu        sync.Mutex
	entries   *simplelru.LRU[string, *cacheEntry] // by the keys of nodes
	fullScans *simplelru.LRU[string, fullScanEntry]
	fetching  sync.WaitGroup
}

func newLatestCache(ttl time.Duration, clock func() time.Time, fetch fetchLatest) *latestCache {
	return &latestCache{
		ttl: ttl, clock: clock, fetch: fetch,
		entries: newLRU[*cacheEntry](), fullScans: newLRU[fullScanEntry](),
	}
}

func newLRU[V any]() *simplelru.LRU[string, V] {
	lru, err := simplelru.NewLRU[string, V](maxCached, nil)
	if err != nil {
		panic(err) // of a size below 1 only
	}
	return lru
}

func (c *latestCache) get(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, error) {
	entries := c.lookup(ctx, nodes)
	newest := make(map[string]reading.Reading, len(nodes))
	for i, entry := range entries {
		select {
		case <-entry.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for latest readings: %w", ctx.Err())
		}
		if entry.err != nil {
			return nil, entry.err
		}
		if entry.latest.exists {
			newest[nodes[i].ID] = entry.latest.reading
		}
	}
	return newest, nil
}

// lookup returns an entry per node and starts one query for all nodes without a
// valid one.
func (c *latestCache) lookup(ctx context.Context, nodes []readings.NodeRef) []*cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	entries := make([]*cacheEntry, len(nodes))
	var asked []readings.NodeRef
	var fresh []*cacheEntry
	for i, node := range nodes {
		key := node.Key()
		entry, ok := c.entries.Get(key)
		if !ok || (!entry.expires.IsZero() && !now.Before(entry.expires)) {
			entry = &cacheEntry{done: make(chan struct{})}
			c.entries.Add(key, entry)
			asked, fresh = append(asked, node), append(fresh, entry)
		}
		entries[i] = entry
	}
	if len(asked) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), latestTimeout)
		c.fetching.Go(func() {
			defer cancel()
			c.fill(ctx, asked, fresh)
		})
	}
	return entries
}

// fill runs a query and completes the entries that wait for it. A failure is
// returned to those who wait and not cached.
func (c *latestCache) fill(ctx context.Context, asked []readings.NodeRef, fresh []*cacheEntry) {
	newest, fullScans, err := c.fetch(ctx, asked, c.fullScanned)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	for i, entry := range fresh {
		node := asked[i]
		entry.err = err
		if err == nil {
			entry.latest.reading, entry.latest.exists = newest[node.ID]
			if before, ok := c.fullScans.Peek(node.Key()); c.ttl > 0 && fullScans[node.ID] && (!ok || !now.Before(before.expires)) {
				c.fullScans.Add(node.Key(), fullScanEntry{latest: entry.latest, expires: now.Add(fullScanTTL)})
			}
		}
		entry.expires = now.Add(c.ttl)
		if err != nil {
			entry.expires = now
		}
		close(entry.done)
	}
}

func (c *latestCache) fullScanned(node readings.NodeRef) (latestReading, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.fullScans.Get(node.Key())
	return before.latest, ok && c.clock().Before(before.expires)
}

// close waits for the queries in flight.
func (c *latestCache) close() { c.fetching.Wait() }
