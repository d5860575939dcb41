package data

import (
	"context"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

const (
	// maxHistoric bounds what is remembered of history, at some 300 bytes each.
	maxHistoric = 50_000
	// maxLookups bounds the sensors of one lookup in history.
	maxLookups = 1000
	// lookupTimeout is for one lookup, which may scan all of a sensor's readings.
	lookupTimeout = time.Minute
	// fillInterval is how often [Newest.Run] looks for nodes whose state nobody has filled.
	fillInterval = 10 * time.Minute
)

// NodeStates is what ingest keeps of nodes.
type NodeStates interface {
	NewestReadings(ctx context.Context, nodes []readings.NodeRef) (newest map[string]reading.Reading, unknown []readings.NodeRef, err error)
	UnfilledNodes(ctx context.Context, limit int) ([]readings.NodeRef, error)
	FillNodeStates(ctx context.Context, newest []reading.Reading, empty []readings.NodeRef) error
}

// Newest answers the newest readings of sensors from the states of their nodes. The
// time-series table is asked once only for what these do not tell: a node that has sent
// nothing since there are states, which then is noted there, and the time of a hold
// that has ended, which is remembered here. That there is nothing is noted too.
type Newest struct {
	states   NodeStates
	history  readings.Reader
	historic *lru.Cache[string, historic] // by [readings.NodeRef.Key] of one span
	lookups  *coalesce.Group[readings.NodeRef, struct{}]
}

// historic is what history tells of one span of a node.
type historic struct {
	newest reading.Reading
	exists bool
}

// NewNewest returns the newest readings by the states of nodes, and a time-series table.
func NewNewest(states NodeStates, history readings.Reader) *Newest {
	remembered, err := lru.New[string, historic](maxHistoric)
	if err != nil {
		panic(err) // only of a size below one
	}
	n := &Newest{states: states, history: history, historic: remembered}
	n.lookups = coalesce.New(n.lookUp, coalesce.Options[readings.NodeRef]{MaxItems: maxLookups})
	return n
}

// Latest returns the newest visible reading of each node that has one.
func (n *Newest) Latest(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, error) {
	newest, unknown, err := n.known(ctx, nodes)
	if err != nil || len(unknown) == 0 {
		return newest, err
	}
	if _, err := n.lookups.DoAll(ctx, unknown); err != nil {
		return nil, err
	}
	newest, _, err = n.known(ctx, nodes)
	return newest, err
}

// Run fills the states of nodes that have none, from history and in the background, until
// ctx ends; it then returns nil. After an upgrade from a version before there were states
// these are all nodes that do not send.
func (n *Newest) Run(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(fillInterval)
	defer ticker.Stop()
	for {
		if err := n.fill(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "states of nodes cannot be filled from history, which is tried again", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// fill fills the states of all nodes that have none.
func (n *Newest) fill(ctx context.Context) error {
	before := ""
	for {
		unfilled, err := n.states.UnfilledNodes(ctx, maxLookups)
		if err != nil || len(unfilled) == 0 || unfilled[0].Key() == before {
			return err
		}
		if _, err := n.lookups.DoAll(ctx, unfilled); err != nil {
			return err
		}
		before = unfilled[0].Key()
	}
}

// known returns what is known without history, and the spans that are not.
func (n *Newest) known(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, []readings.NodeRef, error) {
	newest, unknown, err := n.states.NewestReadings(ctx, nodes)
	if err != nil {
		return nil, nil, err
	}
	var still []readings.NodeRef
	for _, node := range unknown {
		for _, span := range node.Visible {
			one := readings.NodeRef{ID: node.ID, Visible: []reading.Span{span}}
			before, ok := n.historic.Get(one.Key())
			if !ok {
				still = append(still, one)
				continue
			}
			if now, ok := newest[node.ID]; before.exists && (!ok || before.newest.Time.After(now.Time)) {
				newest[node.ID] = before.newest
			}
		}
	}
	return newest, still, nil
}

// lookUp asks history for spans of nodes. Of several of a node it asks one after another:
// answers are by node.
func (n *Newest) lookUp(ctx context.Context, asked []readings.NodeRef) ([]struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	done := make([]struct{}, len(asked))
	for {
		now, answers := map[string]bool{}, []readings.NodeRef(nil)
		for _, node := range asked {
			if !now[node.ID] && !n.historic.Contains(node.Key()) { // others may have asked for it just before
				now[node.ID] = true
				answers = append(answers, node)
			}
		}
		if len(answers) == 0 {
			return done, nil
		}
		found, err := n.history.Latest(ctx, answers)
		if err != nil {
			return nil, err
		}
		var newest []reading.Reading
		var empty []readings.NodeRef
		for _, node := range answers {
			r, exists := found[node.ID]
			switch {
			case !node.Visible[0].Until.IsZero(): // the state is that of today
			case exists:
				newest = append(newest, r)
			default:
				empty = append(empty, node)
			}
		}
		if err := n.states.FillNodeStates(ctx, newest, empty); err != nil {
			return nil, err
		}
		for _, node := range answers {
			r, exists := found[node.ID]
			n.historic.Add(node.Key(), historic{newest: r, exists: exists})
		}
	}
}
