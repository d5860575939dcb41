// Package storealert is the function that stores alerts. It takes a message of topic
// alerts and answers when the alert is stored in the metadata database, not
// acknowledged, for the customer who owns the sensor at that moment.
//
// An event's reading and type are its identity: a redelivered event makes no
// second alert and changes no acknowledgement. An event of a sensor that is deleted,
// or that nobody owns, is ignored.
package storealert

import (
	"context"
	"log/slog"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// Alerts is the metadata database. InsertAlert finds the owner and stores the alert
// in one transaction.
type Alerts interface {
	InsertAlert(ctx context.Context, event alert.Event) (owned bool, err error)
	// AlertDrill records that the event of a drill has come, and reports whether there is such a drill.
	AlertDrill(ctx context.Context, code string) (known bool, err error)
}

// StoreAlert is the function.
type StoreAlert struct {
	alerts   Alerts
	clock    func() time.Time
	log      *slog.Logger
	counters *logmetrics.Counters
}

// New returns the function. Nil counters count nothing.
func New(alerts Alerts, clock func() time.Time, log *slog.Logger, counters *logmetrics.Counters) *StoreAlert {
	return &StoreAlert{alerts: alerts, clock: clock, log: log, counters: counters}
}

// Handle is the function's [push.HandleFunc].
func (s *StoreAlert) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "store alert")
	defer func() { end(err) }()

	event, err := wire.DecodeAlert(m.Data)
	if err != nil {
		return push.Permanent(push.ReasonMalformed, err)
	}
	if event.Drill != "" {
		known, err := s.alerts.AlertDrill(ctx, event.Drill)
		if err == nil && !known {
			s.log.InfoContext(ctx, "drill ignored: it is unknown or has expired")
		}
		return err
	}
	owned, err := s.alerts.InsertAlert(ctx, event)
	switch {
	case err != nil:
		return err
	case event.NodeID == reading.ProbeNodeID:
		// The probe has no owner, so that the same insert stores no row. The service level
		// objective of alerts is measured by this entry.
		s.log.InfoContext(ctx, "probe alerted", "lateness_s", max(0, s.clock().Sub(event.Time)).Seconds())
	case !owned:
		s.counters.Add(ctx, "alerts_ignored", 1)
		s.log.InfoContext(ctx, "alert of an unowned sensor ignored", "node_id", event.NodeID, "alert_type", string(event.Type))
	}
	return nil
}
