// Package detect is the function that judges readings. It takes a message of topic
// data and publishes to topic alerts an event for each value above its owner's
// threshold, whatever the reading's age. The anomaly detector finds deviations below any
// threshold. A reading that breaks a rule, has a finding, or comes from a node whose rules
// have unsettled memory is judged in the database: its rules there decide, under the
// lock of the node's row, and incidents open, last and end.
//
// Its only state between messages is caches. It publishes once the judgement is
// committed, and answers when all events are published. A redelivered message judges the
// reading again without effect and publishes the same events, of which storealert stores
// each once: every failure may be retried.
package detect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// SensorStatuses returns the status of a node. It may be up to 10 seconds old, older while
// the database is down, and fails when the status is neither cached nor readable.
type SensorStatuses interface {
	Status(ctx context.Context, node reading.Node) (pipeline.SensorStatus, error)
	// Remember notes that the rules of a node have memory from now on.
	Remember(node reading.Node)
}

// Origin decodes a message and authenticates its source.
type Origin interface {
	Data(ctx context.Context, m push.Message) (wire.Data, origin.Source, error)
}

// Publisher sends an event to topic alerts and returns once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, e alert.Event) error
}

// publishTimeout bounds a publish, the library's retries included. After it the message
// fails and is redelivered.
const publishTimeout = 4 * time.Second

// NewAlertPublisher publishes alerts to a Pub/Sub topic through the caller's client.
func NewAlertPublisher(client *pubsub.Client, topic string) *publisher.Typed[alert.Event] {
	return publisher.NewTyped(client, topic, publishTimeout, func(e alert.Event) ([]byte, map[string]string, error) {
		data, err := wire.EncodeAlert(e)
		return data, map[string]string{wire.NodeIDAttribute: e.NodeID}, err
	})
}

// Judge applies the owner's rules, as the database has them at that moment, to a reading.
// It returns once the resulting memory and incidents are committed.
type Judge interface {
	Judge(ctx context.Context, judged incidents.Judged) error
	// Unjudged returns the newest readings of nodes whose rules have older memory, and of nodes
	// whose excursion has just ended.
	Unjudged(ctx context.Context) ([]incidents.Judged, error)
	// SettleAll writes the transitions of all customers' incidents that are due by the clock.
	SettleAll(ctx context.Context, now time.Time) error
	// JudgeDrill makes the incident of a drill, and reports whether there is such a drill.
	JudgeDrill(ctx context.Context, m incidents.DrillMessage) (known bool, err error)
}

// AnomalyObserver observes each reading of an owned sensor. Observe is called once per
// delivery and returns when its record is durable. It returns one finding for each kind that
// it could judge, including those that do not hold, which end excursions. The data are as
// measured, because the start of a correction is no change.
type AnomalyObserver interface {
	Observe(ctx context.Context, data wire.Data, sensor pipeline.SensorStatus) ([]incident.Finding, error)
}

// Detect is the function.
type Detect struct {
	origin   Origin
	statuses SensorStatuses
	alerts   Publisher
	judge    Judge
	observer AnomalyObserver
	defaults alert.Thresholds
	log      *slog.Logger
	counters *logmetrics.Counters
}

// New returns the function. defaults apply where the owner has set no thresholds or
// nobody owns the sensor. Without an observer only rules detect. Nil counters count
// nothing.
func New(
	from Origin, statuses SensorStatuses, alerts Publisher, judge Judge, observer AnomalyObserver, defaults alert.Thresholds,
	log *slog.Logger, counters *logmetrics.Counters,
) *Detect {
	return &Detect{
		origin: from, statuses: statuses, alerts: alerts, judge: judge, observer: observer, defaults: defaults, log: log, counters: counters,
	}
}

// A reading older than lateAfter, or delivered again, is always judged: newer ones may have
// been judged before it, and one within its limits may end an excursion.
const lateAfter = time.Minute

// Handle is the function's [push.HandleFunc].
func (d *Detect) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "detect")
	defer func() { end(err) }()

	data, source, err := d.origin.Data(ctx, m)
	if err != nil {
		return err
	}
	r := data.Reading
	if source.Drill != "" {
		return d.handleDrill(ctx, r, incidents.DrillMessage{Code: source.Drill, Channel: r.Channel, Sent: r.Time, Published: m.PublishTime})
	}
	if r.NodeID == reading.ProbeNodeID {
		return d.handleProbe(ctx, r, m.PublishTime)
	}
	status, err := d.statuses.Status(ctx, r.Node())
	if err != nil {
		return fmt.Errorf("look up the sensor: %w", err)
	}
	if status.Deleted {
		d.log.InfoContext(ctx, "reading of a deleted sensor ignored", "node_id", r.NodeID, "reading_id", r.MessageID)
		d.counters.Add(ctx, "readings_ignored", 1)
		return nil
	}
	status.Thresholds = cmp.Or(status.Thresholds, &d.defaults)
	findings, observeErr := d.observe(ctx, data, status)
	data.Reading, data.Recent = status.Corrections.Apply(data.Reading, data.Recent)
	r = data.Reading
	events := alert.Exceeded(r, *status.Thresholds)
	outOfOrder := (status.Owned || r.Channel != reading.Open) && (m.DeliveryAttempt > 1 || m.PublishTime.Sub(r.Time) > lateAfter)
	if outOfOrder || len(events) > 0 || len(findings) > 0 || status.Remembers || breaks(status.Rules, data) {
		err := d.judge.Judge(ctx, incidents.Judged{
			Reading: r, Window: data.Recent, GatewayID: source.GatewayID, Arrived: m.PublishTime, Defaults: d.defaults,
			Findings: findings, HeldFrom: status.HeldFrom,
		})
		if err != nil { // return before publishing: in an outage each delivery would publish again
			return errors.Join(observeErr, err)
		}
		d.statuses.Remember(r.Node())
	}
	return errors.Join(observeErr, d.publish(ctx, events))
}

// handleProbe publishes an alert for a probe reading, dated by its publish time, from which
// storealert measures how late alerts are. It ignores an enrolled gateway's probe, which only
// tests whether Pub/Sub accepts the gateway's messages.
//
// It also judges readings within their limits that an instance skipped because its cached
// status did not show yet that the node's rules have memory, and settles what is due.
func (d *Detect) handleProbe(ctx context.Context, r reading.Reading, published time.Time) error {
	if r.Channel != reading.Open {
		return nil
	}
	err := d.publish(ctx, []alert.Event{
		{NodeID: r.NodeID, MessageID: r.MessageID, Time: published, Type: alert.Temperature, Value: 1, Temperature: 1},
	})
	unjudged, readErr := d.judge.Unjudged(ctx)
	for _, judged := range unjudged {
		judged.Arrived, judged.Defaults = published, d.defaults
		if err := d.judge.Judge(ctx, judged); err != nil {
			d.log.ErrorContext(ctx, "skipped reading not judged", "node_id", judged.NodeID, "reading_id", judged.MessageID, "error", err.Error())
		}
	}
	if err := d.judge.SettleAll(ctx, published); err != nil { // the next probe tries again
		d.log.ErrorContext(ctx, "incidents not settled", "error", err.Error())
	}
	return errors.Join(err, readErr)
}

// handleDrill makes the incident of an alarm drill, which breaks its rule by definition, and
// publishes an event of the probe with the drill's code.
func (d *Detect) handleDrill(ctx context.Context, r reading.Reading, m incidents.DrillMessage) error {
	known, err := d.judge.JudgeDrill(ctx, m)
	if err != nil {
		return err
	}
	if !known {
		d.log.InfoContext(ctx, "drill ignored: it is unknown or has expired")
		return nil
	}
	return d.publish(ctx, []alert.Event{
		{NodeID: r.NodeID, MessageID: r.MessageID, Time: m.Published, Type: alert.Temperature, Value: 1, Temperature: 1, Drill: m.Code},
	})
}

// observe returns the findings for a reading that is the sensor's, from those readings before
// it that its owner may see. A finding that does not hold matters only while there is memory
// that it may settle.
func (d *Detect) observe(ctx context.Context, data wire.Data, status pipeline.SensorStatus) ([]incident.Finding, error) {
	r := data.Reading
	if d.observer == nil || !status.Owned || (status.Signed && r.Channel == reading.Open) || r.Time.Before(status.HeldFrom) {
		return nil, nil
	}
	data.Recent = data.Recent.Within(r.Time.Sub(status.HeldFrom).Seconds())
	findings, err := d.observer.Observe(ctx, data, status)
	if err != nil {
		err = fmt.Errorf("observe reading of %s: %w", r.NodeID, err)
	}
	if !status.Remembers {
		findings = slices.DeleteFunc(findings, func(f incident.Finding) bool { return !f.Holds })
	}
	return findings, err
}

// publish publishes events, even those of a node that nobody owns, because it may be registered
// before storealert stores them.
func (d *Detect) publish(ctx context.Context, events []alert.Event) error {
	var errs []error
	for _, event := range events {
		if err := d.alerts.Publish(ctx, event); err != nil {
			errs = append(errs, fmt.Errorf("publish %s alert of %s: %w", event.Type, event.NodeID, err))
		}
	}
	return errors.Join(errs...)
}

func breaks(rules []incident.Rule, data wire.Data) bool {
	if len(rules) == 0 {
		return false
	}
	points := incident.Points(data.Reading, data.Recent)
	return slices.ContainsFunc(rules, func(r incident.Rule) bool { return r.Breaks(points) })
}
