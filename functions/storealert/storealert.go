// Package storealert is the step that records alerts: it takes an event of
// topic alerts and answers once the alert stands in the metadata database,
// unacknowledged, under the customer who owns the sensor at that moment.
//
// An event's reading and type are its identity: delivered again, it makes no
// second record and does not touch an acknowledgement. An event of a sensor
// that is deleted, or that nobody owns, is ignored.
package storealert

import (
	"context"
	"fmt"
	"log/slog"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// Alerts is the metadata database. InsertAlert resolves the owner and stores the
// alert in one statement.
type Alerts interface {
	InsertAlert(ctx context.Context, event alert.Event) (store.AlertOutcome, error)
}

// StoreAlert is the step.
type StoreAlert struct {
	alerts Alerts
	log    *slog.Logger
	tally  *logmetrics.Tally
}

// New returns the step. A nil tally counts nothing.
func New(alerts Alerts, log *slog.Logger, counts *logmetrics.Tally) *StoreAlert {
	return &StoreAlert{alerts: alerts, log: log, tally: counts}
}

// Handle is the step's [push.Step].
func (s *StoreAlert) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.Begin(ctx, "store alert")
	defer func() { end(err) }()

	event, err := wire.DecodeAlert(m.Data)
	if err != nil {
		return push.Permanent(err)
	}
	outcome, err := s.alerts.InsertAlert(ctx, event)
	if err != nil {
		return fmt.Errorf("store %s alert of %s: %w", event.Type, event.NodeID, err)
	}
	switch outcome {
	case store.AlertStored:
		s.tally.Add(ctx, "alerts_stored", 1)
	case store.AlertKnown:
		s.tally.Add(ctx, "alerts_known", 1)
	case store.AlertIgnored:
		s.tally.Add(ctx, "alerts_ignored", 1)
		s.log.InfoContext(ctx, "alert of a sensor without owner ignored", "node_id", event.NodeID, "alert_type", string(event.Type))
	}
	return nil
}
