// Package detect is the function that checks readings. It takes a message of
// topic data, compares the reading with the thresholds and the other rules of its
// owner, and publishes to topic alerts an event for each value above its threshold,
// whatever the reading's age. A reading that breaks only other rules, or of a node
// whose rules remember something, is published too, without an alert. Of other
// readings nothing is published. Then the anomaly detector looks for what no
// threshold shows.
//
// It keeps no state between messages but caches. A redelivered message gives the
// same events, and storealert stores each event once, so every failure may be
// retried. It answers when all events are published.
package detect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// SensorStatuses gives the status of a node id. It may lag 15 seconds behind the
// database, more while the database is down, and fails when it has no status.
type SensorStatuses interface {
	Status(ctx context.Context, node reading.Node) (store.SensorStatus, error)
}

// Origin decodes a message and says where it comes from.
type Origin interface {
	Data(ctx context.Context, m push.Message) (wire.Data, origin.Source, error)
}

// Publisher sends a message to topic alerts and returns once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, a wire.Alert) error
}

// AnomalyObserver looks at each reading of an owned sensor. Observe is called once per
// delivery and returns when what it records is durable. It returns a finding of each
// kind that it could judge, also of what does not hold: that ends an incident.
type AnomalyObserver interface {
	Observe(ctx context.Context, data wire.Data, sensor store.SensorStatus) ([]incident.Finding, error)
}

// Detect is the function.
type Detect struct {
	origin            Origin
	statuses          SensorStatuses
	publisher         Publisher
	observer          AnomalyObserver
	defaultThresholds alert.Thresholds
	log               *slog.Logger
	counters          *logmetrics.Counters
}

// New returns the function. defaults apply where the owner has set no thresholds or
// nobody owns the sensor. A nil observer leaves the thresholds alone. Nil counters
// count nothing.
func New(
	from Origin, statuses SensorStatuses, publisher Publisher, observer AnomalyObserver, defaultThresholds alert.Thresholds, log *slog.Logger, counters *logmetrics.Counters,
) *Detect {
	return &Detect{
		origin: from, statuses: statuses, publisher: publisher, observer: observer, defaultThresholds: defaultThresholds, log: log, counters: counters,
	}
}

// Handle is the function's [push.HandleFunc].
func (d *Detect) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "detect")
	defer func() { end(err) }()

	data, source, err := d.origin.Data(ctx, m)
	if err != nil {
		return err
	}
	if data.Reading.NodeID == reading.ProbeNodeID {
		d.counters.Add(ctx, "probes_received", 1)
		return d.passProbe(ctx, data.Reading, m.PublishTime)
	}
	node, err := d.statuses.Status(ctx, data.Reading.Node())
	if err != nil {
		return fmt.Errorf("thresholds of %s: %w", data.Reading.NodeID, err)
	}
	if node.Deleted {
		d.log.InfoContext(ctx, "reading of a deleted sensor ignored", "node_id", data.Reading.NodeID, "reading_id", data.Reading.MessageID)
		d.counters.Add(ctx, "readings_ignored", 1)
		return nil
	}
	if node.Thresholds == nil {
		node.Thresholds = &d.defaultThresholds
	}
	var findings []incident.Finding
	var failed error
	if d.observer != nil && node.Owned {
		if findings, failed = d.observer.Observe(ctx, data, node); failed != nil {
			failed = fmt.Errorf("observe reading of %s: %w", data.Reading.NodeID, failed)
		}
	}
	if !node.Remembers { // there is nothing to end
		findings = slices.DeleteFunc(findings, func(f incident.Finding) bool { return !f.Holds })
	}
	if err := errors.Join(d.publishAlerts(ctx, data, source.GatewayID, node, findings), failed); err != nil {
		return err
	}
	d.counters.Add(ctx, "readings_checked", 1)
	return nil
}

// passProbe passes a reading of the probe on as an alert of its publish time, so that
// storealert can tell how late alerts are. What an enrolled gateway signs only tells the
// gateway whether Pub/Sub takes it.
func (d *Detect) passProbe(ctx context.Context, r reading.Reading, published time.Time) error {
	if r.Channel != reading.Open {
		return nil
	}
	event := alert.Event{NodeID: r.NodeID, MessageID: r.MessageID, Time: published, Type: alert.Temperature, Value: 1, Temperature: 1}
	if err := d.publisher.Publish(ctx, wire.Alert{Event: event}); err != nil {
		return fmt.Errorf("publish alert of the probe: %w", err)
	}
	return nil
}

// publishAlerts publishes an event for each value above its threshold, also for a
// node that nobody owns: it may be registered before storealert stores the event.
func (d *Detect) publishAlerts(
	ctx context.Context, data wire.Data, gatewayID string, status store.SensorStatus, findings []incident.Finding,
) error {
	r := data.Reading
	events := alert.Exceeded(r, *status.Thresholds)
	exceeded := len(events) > 0
	if !exceeded {
		if !status.Remembers && len(findings) == 0 && !breaks(status.Rules, data) {
			return nil
		}
		events = []alert.Event{alert.OfReading(r)}
	}
	var recent reading.Window
	if status.Remembers || len(status.Rules) > 0 {
		recent = data.Recent
	}
	var errs []error
	for _, event := range events {
		if err := d.publisher.Publish(ctx, wire.Alert{
			Event: event, GatewayID: gatewayID, Recent: recent, Findings: findings, Versions: status.Versions,
		}); err != nil {
			errs = append(errs, fmt.Errorf("publish %s alert of %s: %w", event.Type, r.NodeID, err))
			continue
		}
		if exceeded {
			d.counters.Add(ctx, "alerts_published", 1)
		}
	}
	return errors.Join(errs...)
}

// breaks reports whether a reading breaks the limit of one of the rules.
func breaks(rules []incident.Rule, data wire.Data) bool {
	if len(rules) == 0 {
		return false
	}
	points := incident.Points(data.Reading, data.Recent)
	return slices.ContainsFunc(rules, func(r incident.Rule) bool { return r.Breaks(points) })
}
