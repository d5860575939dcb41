// Package storealert is the function that stores alerts and incidents. It takes a
// message of topic alerts and answers when the alert, if the message has one, is
// stored in the metadata database, not acknowledged, for the customer who owns the
// sensor at that moment, and when the customer's rules have judged the reading.
//
// An event's reading and type are its identity: a redelivered event makes no
// second alert and changes no acknowledgement, and rules judge a reading again
// without effect. An event of a sensor that is deleted, or that nobody owns, is
// ignored.
package storealert

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// Alerts is the metadata database. InsertAlert resolves the owner and stores the
// alert in one statement. Judge moves the rules' memory and stores the incidents that
// follow.
type Alerts interface {
	InsertAlert(ctx context.Context, event alert.Event) (store.AlertOutcome, error)
	Judge(ctx context.Context, judged store.Judged) error
}

// StoreAlert is the function.
type StoreAlert struct {
	alerts   Alerts
	defaults alert.Thresholds
	log      *slog.Logger
	counters *logmetrics.Counters
}

// New returns the function. defaults are the limits of customers who have set no
// thresholds. Nil counters count nothing.
func New(alerts Alerts, defaults alert.Thresholds, log *slog.Logger, counters *logmetrics.Counters) *StoreAlert {
	return &StoreAlert{alerts: alerts, defaults: defaults, log: log, counters: counters}
}

// Handle is the function's [push.HandleFunc].
func (s *StoreAlert) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "store alert")
	defer func() { end(err) }()

	a, err := wire.DecodeAlert(m.Data)
	if err != nil {
		return push.Permanent(push.ReasonMalformed, err)
	}
	if a.NodeID == reading.ProbeNodeID {
		return s.probe(ctx, a.Event)
	}
	if a.Type != "" {
		if err := s.insert(ctx, a.Event); err != nil {
			return err
		}
	}
	return s.alerts.Judge(ctx, store.Judged{
		Reading: a.Reading(), Window: a.Recent, GatewayID: a.GatewayID, Arrived: m.PublishTime, Defaults: s.defaults,
		Findings: a.Findings, Versions: a.Versions,
	})
}

// probe does with an alert of the probe all that is done with another's: it is nobody's,
// and so the database stores nothing. By the log the service level objective is measured.
func (s *StoreAlert) probe(ctx context.Context, event alert.Event) error {
	if _, err := s.alerts.InsertAlert(ctx, event); err != nil {
		return fmt.Errorf("store alert of the probe: %w", err)
	}
	s.log.InfoContext(ctx, "probe alerted", "lateness_s", time.Since(event.Time).Seconds())
	return nil
}

// insert stores an alert.
func (s *StoreAlert) insert(ctx context.Context, event alert.Event) error {
	outcome, err := s.alerts.InsertAlert(ctx, event)
	if err != nil {
		return fmt.Errorf("store %s alert of %s: %w", event.Type, event.NodeID, err)
	}
	switch outcome {
	case store.AlertStored:
		s.counters.Add(ctx, "alerts_stored", 1)
	case store.AlertDuplicate:
		s.counters.Add(ctx, "alerts_duplicate", 1)
	case store.AlertIgnored:
		s.counters.Add(ctx, "alerts_ignored", 1)
		s.log.InfoContext(ctx, "alert of an unowned sensor ignored", "node_id", event.NodeID, "alert_type", string(event.Type))
	}
	return nil
}
