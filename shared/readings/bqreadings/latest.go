package bqreadings

import (
	"context"
	"fmt"
	"sync"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// horizons are how far back a latest reading is looked for, one after another:
// almost every node reported within a day, and a day costs least.
func horizons() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{day, 30 * day, beginning}
}

// beginning stands for the horizon of everything: no reading is older than the
// year 2000.
const beginning time.Duration = 0

const (
	// latestTimeout bounds a query that others wait for too, and that therefore
	// does not end with the request that started it.
	latestTimeout = 30 * time.Second
	// deepTTL is how long it stays known what lies more than 30 days back: it
	// can only change by a late delivery, and finding it costs most.
	deepTTL = time.Hour
	// maxCached bounds the nodes kept, at some 200 bytes each.
	maxCached = 50_000
)

// Latest returns the newest reading of each node that has one since its Since,
// at most the configured time to live out of date.
func (s *Store) Latest(ctx context.Context, nodes []readings.Node) (map[string]reading.Reading, error) {
	return s.latest.get(ctx, nodes)
}

// queryLatest asks BigQuery for nodes, further back for those not found. deep
// says for which of them everything was searched.
func (s *Store) queryLatest(ctx context.Context, nodes []readings.Node, known func(readings.Node) (found, bool)) (map[string]reading.Reading, map[string]bool, error) {
	now := s.clock()
	newest, deep := make(map[string]reading.Reading, len(nodes)), map[string]bool{}
	until := readings.LatestEnd(now)
	missing, searched := nodes, until
	for _, horizon := range horizons() {
		from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		if horizon != beginning {
			from = now.Add(-horizon)
		}
		var asked []readings.Node
		for _, node := range missing {
			if horizon == beginning {
				deep[node.ID] = true
				if before, ok := known(node); ok {
					if before.exists {
						newest[node.ID] = before.reading
					}
					continue
				}
			}
			if node.Since.Before(searched) { // else nothing of it is further back
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
		var still []readings.Node
		for _, node := range missing {
			if _, ok := newest[node.ID]; !ok {
				still = append(still, node)
			}
		}
		if missing = still; len(missing) == 0 {
			break
		}
	}
	return newest, deep, nil
}

func (s *Store) latestSince(ctx context.Context, nodes []readings.Node, from, until time.Time, into map[string]reading.Reading) error {
	ids, since := make([]string, len(nodes)), make([]int64, len(nodes))
	for i, node := range nodes {
		ids[i], since[i] = node.ID, microsecond(later(node.Since, from))
	}
	found := rows[readingRow](ctx, s, "latest",
		parameter("ids", ids), parameter("since", since), parameter("from", from), parameter("until", until))
	for row, err := range found {
		if err != nil {
			return err
		}
		into[row.NodeID] = row.reading()
	}
	return nil
}

// found is what is known of a node's newest reading.
type found struct {
	reading reading.Reading
	exists  bool
}

// answer is a node's entry in the cache: being fetched until done is closed.
type answer struct {
	done    chan struct{}
	found   found
	err     error
	expires time.Time // zero while being fetched
}

// deepAnswer is what a search through everything has found.
type deepAnswer struct {
	found   found
	expires time.Time
}

// fetchLatest asks for nodes at once. known tells it of earlier deep searches.
type fetchLatest func(ctx context.Context, nodes []readings.Node, known func(readings.Node) (found, bool)) (map[string]reading.Reading, map[string]bool, error)

// latestCache keeps newest readings for seconds and lets all who ask for a node
// meanwhile share one query.
type latestCache struct {
	ttl   time.Duration
	clock func() time.Time
	fetch fetchLatest

	mu       sync.Mutex
	answers  map[readings.Node]*answer
	deep     map[readings.Node]deepAnswer
	fetching sync.WaitGroup
}

func newLatestCache(ttl time.Duration, clock func() time.Time, fetch fetchLatest) *latestCache {
	return &latestCache{
		ttl: ttl, clock: clock, fetch: fetch,
		answers: make(map[readings.Node]*answer), deep: make(map[readings.Node]deepAnswer),
	}
}

func (c *latestCache) get(ctx context.Context, nodes []readings.Node) (map[string]reading.Reading, error) {
	entries := c.enter(ctx, nodes)
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
		if entry.found.exists {
			newest[nodes[i].ID] = entry.found.reading
		}
	}
	return newest, nil
}

// enter returns an entry per node and starts one query for all that nobody has
// asked for yet.
func (c *latestCache) enter(ctx context.Context, nodes []readings.Node) []*answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	c.forget(now)
	entries := make([]*answer, len(nodes))
	var asked []readings.Node
	var fresh []*answer
	for i, node := range nodes {
		entry, ok := c.answers[node]
		if !ok || (!entry.expires.IsZero() && !now.Before(entry.expires)) {
			entry = &answer{done: make(chan struct{})}
			c.answers[node] = entry
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
// told to those who waited and not kept.
func (c *latestCache) fill(ctx context.Context, asked []readings.Node, fresh []*answer) {
	newest, deep, err := c.fetch(ctx, asked, c.known)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	for i, entry := range fresh {
		node := asked[i]
		entry.err = err
		if err == nil {
			entry.found.reading, entry.found.exists = newest[node.ID]
			if before, ok := c.deep[node]; c.ttl > 0 && deep[node.ID] && (!ok || !now.Before(before.expires)) {
				c.deep[node] = deepAnswer{found: entry.found, expires: now.Add(deepTTL)}
			}
		}
		entry.expires = now.Add(c.ttl)
		if err != nil {
			entry.expires = now
		}
		close(entry.done)
	}
}

func (c *latestCache) known(node readings.Node) (found, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.deep[node]
	return before.found, ok && c.clock().Before(before.expires)
}

// forget drops what has expired once the cache is full, and everything settled
// when that is not enough.
func (c *latestCache) forget(now time.Time) {
	if len(c.answers) > maxCached {
		for node, entry := range c.answers {
			if !entry.expires.IsZero() && !now.Before(entry.expires) {
				delete(c.answers, node)
			}
		}
	}
	for node, before := range c.deep {
		if len(c.deep) <= maxCached {
			break
		}
		if !now.Before(before.expires) || len(c.deep) > 2*maxCached {
			delete(c.deep, node)
		}
	}
}

// close waits for the queries under way.
func (c *latestCache) close() { c.fetching.Wait() }
