// Package ingest is the function that stores readings. It takes a message of
// topic data and answers when the reading is durable in the time-series table.
//
// It stores the reading alone, corrected if its sensor has a correction, with the measured values
// beside; the window of earlier readings in the message is for
// detection. Readings of a deleted sensor are ignored; while the metadata database is
// unavailable, nothing is stored. Readings of an unregistered node are stored, so that a node
// plugged in before its registration loses nothing. Storing a reading twice changes
// nothing, so every failure may be retried.
//
// The newest reading of each node and its last day in slots of ten minutes are written to
// the metadata database before the reading is appended: while that database is unavailable
// nothing is appended, so hours of redelivery leave no copies in the time-series table.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tracing"
)

// Readings is the time-series table. Append returns once the rows are durable. Maintain
// aggregates the hours that have left the raw days.
type Readings interface {
	Append(ctx context.Context, rows []reading.Reading) error
	Maintain(ctx context.Context) error
}

// Sensors returns the sensor status of a node as it is now.
type Sensors interface {
	Current(ctx context.Context, node reading.Node) (pipeline.SensorStatus, error)
}

// Origin decodes and authenticates a message.
type Origin interface {
	Reading(ctx context.Context, m push.Message) (reading.Reading, origin.Source, error)
}

// NodeStates writes to the metadata database: the newest reading of each node, the channel
// of each sensor, and the publish time of the newest probe reading. Its methods return once
// the write is durable.
type NodeStates interface {
	UpdateNodeStates(ctx context.Context, batch []pipeline.NodeReading) error
	SignSensor(ctx context.Context, node reading.Node, at time.Time, gatewayID string) error
	KeepProbe(ctx context.Context, published, received time.Time) error
	// KeepLate records that a reading of an earlier month is stored.
	KeepLate(ctx context.Context, r reading.Reading) error
	// IngestDrill reports whether there is such a drill.
	IngestDrill(ctx context.Context, m incidents.DrillMessage) (known bool, err error)
}

// Bounds of a write to the metadata database.
const (
	maxStates    = 500 // of one statement
	stateTimeout = 5 * time.Second
)

// Ingest is the function.
type Ingest struct {
	origin   Origin
	states   NodeStates
	updates  *coalesce.Group[pipeline.NodeReading, struct{}] // concurrent callers share a statement
	readings Readings
	sensors  Sensors
	clock    func() time.Time
	log      *slog.Logger
	counters *logmetrics.Counters
}

// New returns the function. Nil counters count nothing.
func New(
	from Origin, states NodeStates, table Readings, sensors Sensors, clock func() time.Time, log *slog.Logger, counters *logmetrics.Counters,
) *Ingest {
	update := func(ctx context.Context, batch []pipeline.NodeReading) ([]struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		return make([]struct{}, len(batch)), states.UpdateNodeStates(ctx, batch)
	}
	return &Ingest{
		origin: from, states: states, updates: coalesce.New(update, coalesce.Options[pipeline.NodeReading]{MaxItems: maxStates}),
		readings: table, sensors: sensors, clock: clock, log: log, counters: counters,
	}
}

// handleProbe stores when a probe reading was published and runs the maintenance that is due
// each minute. A signed probe comes from a gateway, which only tests whether Pub/Sub accepts
// its messages; it is not stored.
func (i *Ingest) handleProbe(ctx context.Context, channel reading.Channel, published time.Time) error {
	if channel == reading.Open {
		keepCtx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		if err := i.states.KeepProbe(keepCtx, published, i.clock()); err != nil {
			return err
		}
		// The service level objective is computed from this entry. Not below 0, as clocks differ.
		i.log.InfoContext(ctx, "probe readable", "lateness_s", max(0, i.clock().Sub(published)).Seconds())
		i.maintain(ctx)
	}
	i.counters.Add(ctx, "probes_received", 1)
	return nil
}

// handleDrill records that an alarm drill has come this far.
func (i *Ingest) handleDrill(ctx context.Context, m incidents.DrillMessage) error {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	known, err := i.states.IngestDrill(ctx, m)
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
	// Before the append: while the database is unavailable, each attempt would otherwise
	// leave another copy in the time-series table.
	status, err := i.sensors.Current(ctx, r.Node())
	if err != nil {
		return err
	}
	if status.Deleted {
		i.log.InfoContext(ctx, "reading of a deleted sensor ignored", "node_id", r.NodeID, "reading_id", r.MessageID)
		i.counters.Add(ctx, "readings_ignored", 1)
		return nil
	}
	switch {
	case r.Channel != reading.Open && status.Owned && !status.Signed:
		signCtx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		if err := i.states.SignSensor(signCtx, r.Node(), r.Time, source.GatewayID); err != nil {
			return err
		}
	case r.Channel == reading.Open && status.Signed: // stored, but not shown as the sensor's
		i.counters.Add(ctx, "readings_beside_signed", 1)
	}
	r, _ = status.Corrections.Apply(r, reading.Window{})
	if _, err := i.updates.Do(ctx, pipeline.NodeReading{Reading: r, GatewayID: source.GatewayID}); err != nil {
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
	if now := i.clock().UTC(); r.Time.Year() != now.Year() || r.Time.Month() != now.Month() { // the record of its month has to have it
		lateCtx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		return i.states.KeepLate(lateCtx, r)
	}
	return nil
}
