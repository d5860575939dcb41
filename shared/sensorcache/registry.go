// Package sensorcache is what the pipeline knows of the nodes that send readings:
// whether somebody owns one, whether it was deleted, and what its owner allows.
//
// functions/ingest asks whether a node is deleted and must be told the truth of
// this moment; functions/detect asks for all of it and lives with an answer a
// few seconds old. Neither pays a query per reading: lookups that come while
// one is under way share the next one, and live sensors are cached.
//
// The cache is hashicorp's golang-lru (bounded, expiring, kept up); the sharing
// of queries is ours, because golang.org/x/sync/singleflight joins lookups of
// the same key only.
package sensorcache

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/store"
)

// Bounds of what is cached.
const (
	// Fresh is how old a cached answer may be: a changed threshold reaches
	// detection within 15 seconds, of which the rest is for the query.
	Fresh = 10 * time.Second
	// Stale is how old an answer may be while the database is away.
	Stale = 10 * time.Minute
	// Patience is how long a fresh answer is waited for where a stale one is at
	// hand: a database that hangs must not hold up every reading.
	Patience = time.Second
	// Size is how many nodes are cached.
	Size = 100_000
)

// Node is what is known of a node.
type Node struct {
	Deleted bool // a customer had it, and nobody has it now
	Owned   bool // a customer has it
	// Limits are its owner's; they mean nothing unless HasLimits.
	Limits    alert.Thresholds
	HasLimits bool
}

// Source answers for many nodes at once; those that nobody ever had are absent.
type Source interface {
	Nodes(ctx context.Context, ids []string) (map[string]store.Node, error)
}

// Registry answers for nodes.
type Registry struct {
	lookups *lookups
	cache   *expirable.LRU[string, entry]
	clock   func() time.Time
}

type entry struct {
	node  Node
	known time.Time
}

// New returns a registry over the metadata store.
func New(source Source, clock func() time.Time) *Registry {
	return &Registry{
		lookups: &lookups{source: source},
		cache:   expirable.NewLRU[string, entry](Size, nil, Stale),
		clock:   clock,
	}
}

// Deleted reports whether a node's sensor was deleted and not created again, as
// of now.
func (r *Registry) Deleted(ctx context.Context, nodeID string) (bool, error) {
	node, err := r.lookups.get(ctx, nodeID)
	if err != nil {
		return false, fmt.Errorf("node %s: %w", nodeID, err)
	}
	return node.Deleted, nil
}

// Node returns what is known of a node, up to [Fresh] old, or up to [Stale]
// while the database does not answer within [Patience]. Only sensors that somebody owns are
// cached: one that was just created again must lose no alert.
func (r *Registry) Node(ctx context.Context, nodeID string) (Node, error) {
	cached, ok := r.cache.Get(nodeID)
	if ok && r.clock().Sub(cached.known) < Fresh {
		return cached.node, nil
	}
	known := r.clock() // before the query: what changes during it is not in the answer
	asking := ctx
	if ok {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	node, err := r.lookups.get(asking, nodeID)
	if err != nil {
		if ok && ctx.Err() == nil {
			return cached.node, nil
		}
		return Node{}, fmt.Errorf("node %s: %w", nodeID, err)
	}
	if node.Owned {
		r.cache.Add(nodeID, entry{node: node, known: known})
	} else {
		r.cache.Remove(nodeID)
	}
	return node, nil
}

func nodeOf(n store.Node) Node {
	node := Node{Deleted: n.Deleted, Owned: n.Owned}
	if n.Limits != nil {
		node.Limits, node.HasLimits = *n.Limits, true
	}
	return node
}
