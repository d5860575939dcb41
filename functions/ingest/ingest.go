// Package ingest is the function that stores readings. It takes a message of
// topic data and answers when the reading is durable in the time-series table.
//
// It stores the reading of the message; the window of earlier readings beside it
// is for detection. It ignores a reading of a deleted sensor, and stores nothing
// while the metadata database cannot tell. It stores a reading of a node that nobody
// has registered, so that a node that is plugged in before its registration loses
// nothing. Storing a reading twice changes nothing, so every failure may be retried.
//
// Whose a reading is and when it was, package origin says. The newest reading of each
// node and its last day in slots of ten minutes are kept in the metadata database before
// the reading is appended: while that is away nothing is, and hours of redelivery leave
// no copies in the time-series table.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tracing"
)

// Readings is the time-series table. Append returns once the rows are durable.
type Readings interface {
	Append(ctx context.Context, rows []reading.Reading) error
}

// DeletedSensors reports whether a node's sensor is deleted now.
type DeletedSensors interface {
	Deleted(ctx context.Context, node reading.Node) (bool, error)
}

// Origin decodes a message and says where it comes from.
type Origin interface {
	Reading(ctx context.Context, m push.Message) (reading.Reading, origin.Source, error)
}

// NodeStates keeps the newest reading of each node, and when that of the probe was
// published, of which it returns how long ago that is. Its methods return when it is
// durable.
type NodeStates interface {
	Keep(ctx context.Context, r store.NodeReading) error
	KeepProbe(ctx context.Context, published time.Time) (time.Duration, error)
}

// Ingest is the function.
type Ingest struct {
	origin         Origin
	states         NodeStates
	readings       Readings
	deletedSensors DeletedSensors
	log            *slog.Logger
	counters       *logmetrics.Counters
}

// New returns the function. Nil counters count nothing.
func New(
	from Origin, states NodeStates, table Readings, deletedSensors DeletedSensors, log *slog.Logger, counters *logmetrics.Counters,
) *Ingest {
	return &Ingest{origin: from, states: states, readings: table, deletedSensors: deletedSensors, log: log, counters: counters}
}

// Handle is the function's [push.HandleFunc].
func (i *Ingest) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "ingest")
	defer func() { end(err) }()

	r, source, err := i.origin.Reading(ctx, m)
	if err != nil {
		return err
	}
	if r.NodeID == reading.ProbeNodeID {
		// What an enrolled gateway signs only tells the gateway whether Pub/Sub takes it.
		if r.Channel == reading.Open {
			late, err := i.states.KeepProbe(ctx, m.PublishTime)
			if err != nil {
				return err
			}
			// By which the service level objective is measured.
			i.log.InfoContext(ctx, "probe readable", "lateness_s", late.Seconds())
		}
		i.counters.Add(ctx, "probes_received", 1)
		return nil
	}
	// Before the append: while the database is away, each attempt would otherwise leave
	// another copy in the time-series table.
	deleted, err := i.deletedSensors.Deleted(ctx, r.Node())
	if err != nil {
		return fmt.Errorf("deleted-sensor check of %s: %w", r.NodeID, err)
	}
	if deleted {
		i.log.InfoContext(ctx, "reading of a deleted sensor ignored", "node_id", r.NodeID, "reading_id", r.MessageID)
		i.counters.Add(ctx, "readings_ignored", 1)
		return nil
	}
	if err := i.states.Keep(ctx, store.NodeReading{Reading: r, GatewayID: source.GatewayID}); err != nil {
		return fmt.Errorf("state of %s: %w", r.NodeID, err)
	}
	if err := i.readings.Append(ctx, []reading.Reading{r}); err != nil {
		err = fmt.Errorf("store reading of %s: %w", r.NodeID, err)
		if errors.Is(err, readings.ErrRowRefused) {
			return push.Unexpected(push.ReasonRejected, err)
		}
		return err
	}
	i.counters.Add(ctx, "readings_stored", 1)
	return nil
}
