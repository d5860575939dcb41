// Package ingest is the step that stores readings: it takes a message of topic
// data and answers once the reading is durable in the time-series table.
//
// It stores what the message says and nothing else; the window of earlier
// readings that rides along is for detection. A reading of a deleted sensor is
// ignored, one of a sensor nobody registered is kept, so that a node plugged in
// before its registration loses nothing. Storing a reading twice changes
// nothing, so every failure may simply be delivered again.
package ingest

import (
	"context"
	"fmt"
	"log/slog"

	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// Readings is the time-series table. Append returns once the rows are durable.
type Readings interface {
	Append(ctx context.Context, rows []reading.Reading) error
}

// Tombstones knows the identifiers of deleted sensors, as of now.
type Tombstones interface {
	Deleted(ctx context.Context, nodeID string) (bool, error)
}

// Ingest is the step.
type Ingest struct {
	readings   Readings
	tombstones Tombstones
	log        *slog.Logger
	tally      *logmetrics.Tally
}

// New returns the step. A nil tally counts nothing.
func New(readings Readings, tombstones Tombstones, log *slog.Logger, counts *logmetrics.Tally) *Ingest {
	return &Ingest{readings: readings, tombstones: tombstones, log: log, tally: counts}
}

// Handle is the step's [push.Step].
func (i *Ingest) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.Begin(ctx, "ingest")
	defer func() { end(err) }()

	r, err := wire.DecodeReading(m.Data, m.PublishTime)
	if err != nil {
		return push.Permanent(err)
	}
	if i.ignored(ctx, r) {
		i.tally.Add(ctx, "readings_ignored", 1)
		return nil
	}
	if err := i.readings.Append(ctx, []reading.Reading{r}); err != nil {
		return fmt.Errorf("store reading of %s: %w", r.NodeID, err)
	}
	i.tally.Add(ctx, "readings_stored", 1)
	return nil
}

// ignored reports whether the reading's sensor was deleted. When nobody can
// tell, the reading is stored: one too many can be left unread, one too few
// cannot be brought back.
func (i *Ingest) ignored(ctx context.Context, r reading.Reading) bool {
	deleted, err := i.tombstones.Deleted(ctx, r.NodeID)
	if err != nil {
		i.log.WarnContext(ctx, "deleted sensors cannot be told, reading stored", "node_id", r.NodeID, "error", err.Error())
		i.tally.Add(ctx, "tombstones_unknown", 1)
		return false
	}
	if deleted {
		i.log.InfoContext(ctx, "reading of a deleted sensor ignored", "node_id", r.NodeID, "reading_id", r.MessageID)
	}
	return deleted
}
