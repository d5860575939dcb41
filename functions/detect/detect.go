// Package detect is the step that judges readings: it takes a message of topic
// data, compares the reading with what its owner allows, and publishes an event
// to topic alerts for each value that is too high; then it hands the reading to
// the learned part, which looks for what no threshold shows.
//
// It keeps nothing between messages but caches. The same message always gives
// the same events, and storealert keeps one of each, so that every failure may
// simply be delivered again. It answers only when every event is published.
package detect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// Backlog is the age on arrival beyond which a reading raises no alert: the
// gateway delivers what it held back during an outage, and an alarm about a
// past that nobody can change would only hide the present.
const Backlog = 10 * time.Minute

// Nodes answers from a cache that may lag 15 seconds behind the database, and
// from a staler one when the database is away. It fails rather than guess.
type Nodes interface {
	Node(ctx context.Context, nodeID string) (sensorcache.Node, error)
}

// Publisher sends an event to topic alerts and returns once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, event alert.Event) error
}

// Learned is the part of detection that learns. Observe sees each reading of an
// owned sensor once per delivery and returns when whatever it keeps is durable.
type Learned interface {
	Observe(ctx context.Context, data wire.Data) error
}

// Detect is the step.
type Detect struct {
	nodes     Nodes
	publisher Publisher
	learned   Learned
	defaults  alert.Thresholds
	log       *slog.Logger
	tally     *logmetrics.Tally
}

// New returns the step. defaults apply where the owner has set no thresholds or
// nobody owns the sensor. learned may be nil: thresholds alone then. A nil
// tally counts nothing.
func New(
	nodes Nodes, publisher Publisher, learned Learned, defaults alert.Thresholds, log *slog.Logger, counts *logmetrics.Tally,
) *Detect {
	return &Detect{
		nodes: nodes, publisher: publisher, learned: learned, defaults: defaults, log: log, tally: counts,
	}
}

// Handle is the step's [push.Step].
func (d *Detect) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.Begin(ctx, "detect")
	defer func() { end(err) }()

	data, err := wire.DecodeData(m.Data, m.PublishTime)
	if err != nil {
		return push.Permanent(err)
	}
	node, err := d.nodes.Node(ctx, data.Reading.NodeID)
	if err != nil {
		return fmt.Errorf("limits of %s: %w", data.Reading.NodeID, err)
	}
	if node.Deleted {
		d.log.InfoContext(ctx, "reading of a deleted sensor not judged", "node_id", data.Reading.NodeID, "reading_id", data.Reading.MessageID)
		d.tally.Add(ctx, "readings_ignored", 1)
		return nil
	}
	// By Pub/Sub's own time: a message that waits out a failure of ours is no
	// backlog.
	if m.PublishTime.Sub(data.Reading.Time) > Backlog {
		d.tally.Add(ctx, "readings_backlog", 1)
	} else if err := d.judge(ctx, data.Reading, node); err != nil {
		return err
	}
	d.tally.Add(ctx, "readings_judged", 1)
	if d.learned == nil || !node.Owned {
		return nil
	}
	if err := d.learned.Observe(ctx, data); err != nil {
		return fmt.Errorf("observe reading of %s: %w", data.Reading.NodeID, err)
	}
	return nil
}

// judge publishes an event for each value over its limit. Sensors that nobody
// owns are judged too: one may be registered before the event is stored, and
// storealert decides at that moment.
func (d *Detect) judge(ctx context.Context, r reading.Reading, node sensorcache.Node) error {
	limits := d.defaults
	if node.HasLimits {
		limits = node.Limits
	}
	var faults []error
	for _, event := range alert.Judge(r, limits) {
		if err := d.publisher.Publish(ctx, event); err != nil {
			faults = append(faults, fmt.Errorf("publish %s alert of %s: %w", event.Type, r.NodeID, err))
			continue
		}
		d.tally.Add(ctx, "alerts_published", 1)
	}
	return errors.Join(faults...)
}
