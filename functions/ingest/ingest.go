// Package ingest is the function that stores readings. It takes a message of
// topic data and answers when the reading is durable in the time-series table.
//
// It stores the reading, corrected if its sensor has a correction, beside the measured values; the
// message's window of earlier readings is for detection. Readings of a deleted sensor are
// ignored; while the metadata database is unavailable, nothing is stored. Readings of an
// unregistered node are stored, so that a node plugged in before its registration loses
// nothing. Storing a reading twice changes nothing, so every failure may be retried.
//
// Concurrent messages share one transaction of the metadata database: the status of their
// sensors, the newest reading of each node and its last day in slots of ten minutes, and the
// raw rows. The archive, if there is one, comes after it: while that database is unavailable
// nothing is appended, so hours of redelivery leave no copies there.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tracing"
)

// Readings is the time-series table. Insert inserts raw rows in a transaction; Archive returns
// once the rows are durable everywhere else. Maintain aggregates the hours that have left the
// raw days.
type Readings interface {
	Insert(ctx context.Context, tx *store.DB, rows []reading.Reading) error
	Archive(ctx context.Context, rows []reading.Reading) error
	Maintain(ctx context.Context) error
}

// Origin decodes and authenticates a message.
type Origin interface {
	Reading(ctx context.Context, m push.Message) (reading.Reading, origin.Source, error)
}

// Metadata is the metadata database: the status of sensors, the newest reading of each node,
// and the publish time of the newest probe reading. Its methods return once the write is
// durable.
type Metadata interface {
	StoreReadings(
		ctx context.Context, batch []pipeline.NodeReading, insert func(ctx context.Context, tx *store.DB, rows []reading.Reading) error,
	) ([]pipeline.Stored, error)
	RecordProbe(ctx context.Context, published, received time.Time) error
	// RecordLate records that a reading of an earlier month was stored.
	RecordLate(ctx context.Context, r reading.Reading) error
	// IngestDrill records that a drill was ingested, and reports false if there is no such drill.
	IngestDrill(ctx context.Context, m incidents.DrillMessage) (known bool, err error)
}

// Bounds of a write to the metadata database.
const (
	maxBatch     = 500 // readings of a transaction
	storeTimeout = 8 * time.Second
)

// Ingest is the function.
type Ingest struct {
	origin   Origin
	metadata Metadata
	batches  *coalesce.Group[pipeline.NodeReading, result]
	readings Readings
	clock    func() time.Time
	log      *slog.Logger
	counters *logmetrics.Counters
}

// result is the outcome of storing one reading of a batch.
type result struct {
	pipeline.Stored

	err error
}

// New returns the function, whose transactions wait for further readings.
// Nil counters count nothing.
func New(
	from Origin, metadata Metadata, table Readings, wait coalesce.Wait, clock func() time.Time, log *slog.Logger, counters *logmetrics.Counters,
) *Ingest {
	i := &Ingest{origin: from, metadata: metadata, readings: table, clock: clock, log: log, counters: counters}
	i.batches = coalesce.New(i.store, coalesce.Options[pipeline.NodeReading]{MaxItems: maxBatch, Wait: wait})
	return i
}

// store stores a batch. If it fails because of a row (one that the database refuses for good,
// or that a panic is about), each is stored alone, so that none fails because of another.
func (i *Ingest) store(ctx context.Context, batch []pipeline.NodeReading) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	results := make([]result, len(batch))
	stored, err := i.transact(ctx, batch)
	if err != nil && (len(batch) == 1 || !push.Refused(err)) {
		return nil, err
	}
	for j := range results {
		if err == nil {
			results[j].Stored = stored[j]
			continue
		}
		alone, err := i.transact(ctx, batch[j:j+1])
		if results[j].err = err; err == nil {
			results[j].Stored = alone[0]
		}
	}
	return results, nil
}

func (i *Ingest) transact(ctx context.Context, batch []pipeline.NodeReading) (stored []pipeline.Stored, err error) {
	defer parallel.Recover(&err)
	return i.metadata.StoreReadings(ctx, batch, i.readings.Insert)
}

// handleProbe stores when a probe reading was published and runs the maintenance that is due
// each minute. A signed probe comes from a gateway, which only tests whether Pub/Sub accepts
// its messages; it is not stored.
func (i *Ingest) handleProbe(ctx context.Context, channel reading.Channel, published time.Time) error {
	if channel == reading.Open {
		keepCtx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if err := i.metadata.RecordProbe(keepCtx, published, i.clock()); err != nil {
			return err
		}
		// The service level objective is computed from this entry. Clocks differ, so not below 0.
		i.log.InfoContext(ctx, "probe readable", "lateness_s", max(0, i.clock().Sub(published)).Seconds())
		i.maintain(ctx)
	}
	return nil
}

func (i *Ingest) handleDrill(ctx context.Context, m incidents.DrillMessage) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	known, err := i.metadata.IngestDrill(ctx, m)
	if err == nil && !known {
		i.log.InfoContext(ctx, "drill ignored: it is unknown or has expired")
	}
	return err
}

// maintainTimeout bounds the work that one probe starts; the next one continues it.
const maintainTimeout = 20 * time.Second

// maintain runs the time-series table's maintenance, once a minute like the probe that calls
// it. Its errors do not fail the probe, which measures how late readings are.
func (i *Ingest) maintain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maintainTimeout)
	defer cancel()
	if err := i.readings.Maintain(ctx); err != nil {
		i.log.ErrorContext(ctx, "hourly aggregates failed; retrying in a minute", "error", err.Error())
	}
}

// Handle is the function's [push.HandleFunc].
func (i *Ingest) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "ingest")
	defer func() { end(err) }()

	r, source, err := i.origin.Reading(ctx, m)
	if err != nil {
		return err
	}
	if source.Drill != "" {
		return i.handleDrill(ctx, incidents.DrillMessage{Code: source.Drill, Channel: r.Channel, Sent: r.Time, Published: m.PublishTime})
	}
	if r.NodeID == reading.ProbeNodeID {
		return i.handleProbe(ctx, r.Channel, m.PublishTime)
	}
	stored, err := i.batches.Do(ctx, pipeline.NodeReading{Reading: r, GatewayID: source.GatewayID})
	if err = cmp.Or(err, stored.err); err != nil {
		return fmt.Errorf("store reading of %s: %w", r.NodeID, err)
	}
	if stored.Deleted {
		i.log.InfoContext(ctx, "reading of a deleted sensor ignored", "node_id", r.NodeID, "reading_id", r.MessageID)
		i.counters.Add(ctx, "readings_ignored", 1)
		return nil
	}
	if stored.BesideSigned {
		i.counters.Add(ctx, "readings_beside_signed", 1)
	}
	if err := i.readings.Archive(ctx, []reading.Reading{stored.Reading}); err != nil {
		err = fmt.Errorf("store reading of %s: %w", r.NodeID, err)
		if errors.Is(err, readings.ErrRowRefused) {
			return push.Unexpected(push.ReasonRejected, err)
		}
		return err
	}
	i.counters.Add(ctx, "readings_stored", 1)
	if now := i.clock().UTC(); r.Time.Year() != now.Year() || r.Time.Month() != now.Month() { // the record of its month has to have it
		lateCtx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return i.metadata.RecordLate(lateCtx, r)
	}
	return nil
}
