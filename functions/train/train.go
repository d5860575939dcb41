// Package train is the step that retrains the models: it takes a request of
// topic model-retraining, learns from the readings of one customer and from their
// verdicts that no run has used, publishes what passes the gate, and ends the run.
//
// A request delivered again finds its run ended and does nothing. An error fails
// the run with a message that says what a person can do, and leaves the verdicts
// for the next. A stop or a crash leaves the run under way: the next delivery of the
// request takes it over once the claim on it has expired; without one, the API fails
// it after 15 minutes. A crash between publishing and ending trains once more: models
// are named by their time and their run, so nothing is overwritten.
package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

const (
	// historySpan is the span of readings that a run reads. Older readings say little
	// about a room today, and each day costs a scan.
	historySpan = 4 * 7 * 24 * time.Hour
	// minReadingsPerNode is the fewest readings of a node that are asked for: an hour.
	minReadingsPerNode = 120
	// maxVerdicts is the most verdicts that one run uses, maxOldVerdicts the most of
	// earlier runs that the new models are compared on.
	maxVerdicts    = 2000
	maxOldVerdicts = 200
	// claimRenewal is the interval at which a claim is renewed. Two renewals may fail
	// before the claim expires.
	claimRenewal = learning.ClaimTime / 3
	// failTimeout bounds the statement that marks a run as failed.
	failTimeout = 5 * time.Second
	// maxParallelReads is the number of ranges of readings that are read at a time.
	maxParallelReads = 8
)

// Readings is the time-series table.
type Readings interface {
	readings.Reader
	Sample(ctx context.Context, nodes []readings.NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error]
}

// Train is the step.
type Train struct {
	runs     learning.Store
	readings Readings
	models   *modelstore.Bucket
	rows     int
	clock    func() time.Time
	log      *slog.Logger
}

// New returns the step, which learns from at most rows readings.
func New(
	runs learning.Store, table Readings, bucket *modelstore.Bucket, rows int, clock func() time.Time, log *slog.Logger,
) *Train {
	return &Train{runs: runs, readings: table, models: bucket, rows: rows, clock: clock, log: log}
}

// Handle is the step's [push.HandleFunc].
func (t *Train) Handle(ctx context.Context, m push.Message) (err error) {
	ctx, end := tracing.StartSpan(ctx, "train")
	defer func() { end(err) }()

	request, err := wire.DecodeRetraining(m.Data)
	if err != nil {
		return push.Permanent(push.ReasonMalformed, err)
	}
	if request.TriggeredBy == wire.DailyRefresh {
		return t.refresh(ctx)
	}
	claim, err := t.runs.ClaimRun(ctx, request.TrainingRunID)
	switch {
	case errors.Is(err, store.ErrRunEnded):
		t.log.InfoContext(ctx, "training run has ended already", "training_run_id", request.TrainingRunID)
		return nil
	case errors.Is(err, store.ErrNoRun):
		return push.Permanent(push.ReasonUnknownRun, err)
	case err != nil:
		return err
	}
	held, release := renewClaim(ctx, t.runs, claim, claimRenewal)
	failed := t.run(held, claim)
	if lost := context.Cause(held); failed != nil && errors.Is(lost, store.ErrRunEnded) {
		failed = lost
	}
	release()
	// A run takes many times the memory that the function needs until the next run,
	// which may be weeks away.
	debug.FreeOSMemory()
	if failed == nil {
		return nil
	}
	if errors.Is(failed, store.ErrRunEnded) { // another trainer has claimed or ended it
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the function stops; the run is not at fault
		return failed
	}
	// The run's own context may be what has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failTimeout)
	defer cancel()
	t.log.ErrorContext(ctx, "training run failed", "training_run_id", claim.RunID, "error", failed.Error())
	if _, err := t.runs.FailRun(ctx, claim, failureMessage(failed)); err != nil && !errors.Is(err, store.ErrRunEnded) {
		return errors.Join(failed, err)
	}
	return nil
}

// renewClaim renews a claim every so often until it is released. The context that it
// returns ends when the claim is void, with [store.ErrRunEnded] for its cause.
func renewClaim(ctx context.Context, runs learning.Store, claim learning.Claim, every time.Duration) (held context.Context, release func()) {
	held, end := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-ticks.C:
			}
			if err := runs.RenewRun(held, claim); errors.Is(err, store.ErrRunEnded) {
				end(err)
			}
		}
	})
	return held, func() { end(nil); renewing.Wait() }
}

// failureMessage says what failed and what a person can do.
func failureMessage(err error) string {
	switch {
	case errors.Is(err, learn.ErrTooFewRows):
		return err.Error()
	case errors.Is(err, modelstore.ErrConflict):
		return "other models were published while this run trained; start it again"
	case errors.Is(err, context.DeadlineExceeded):
		return "the run took too long; lower TRAINING_ROWS or give the function more CPU, then start it again"
	default:
		// The cause, with names of hosts and tables, is in the log.
		return "the run met an error, which is in the log of function train; the verdicts are kept, start it again once it is fixed"
	}
}

func (t *Train) run(ctx context.Context, claim learning.Claim) error {
	now := t.clock()
	verdicts, err := t.runs.UnusedVerdicts(ctx, claim.CustomerID, maxVerdicts)
	if err != nil {
		return err
	}
	earlier, err := t.runs.UsedVerdicts(ctx, claim.CustomerID, maxOldVerdicts)
	if err != nil {
		return err
	}
	in := learn.Input{Seed: uint64(claim.RunID), Run: claim.RunID, Started: now} //nolint:gosec // ids are positive
	if in.History, err = t.history(ctx, claim.CustomerID, now); err != nil {
		return err
	}
	if in.Labels, err = t.judged(ctx, slices.Concat(verdicts, earlier)); err != nil {
		return err
	}
	manifest, err := t.models.Manifest(ctx, claim.CustomerID)
	if err != nil {
		return err
	}
	live, _, err := t.models.Load(ctx, claim.CustomerID, manifest)
	if err != nil {
		// Models that cannot be loaded are in use nowhere; new ones replace them.
		t.log.ErrorContext(ctx, "models in use cannot be loaded, this run replaces them", "error", err.Error())
	}
	in.LiveDetector, in.LiveForecaster = live.Detector, live.Forecaster
	result, err := learn.Train(ctx, in)
	if err != nil {
		return err
	}
	metrics, err := json.Marshal(result.Metrics)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	published, err := t.models.Publish(ctx, claim.CustomerID, manifest, result.Detector, result.Forecaster, now)
	if err != nil {
		return err
	}
	_, err = t.runs.CompleteRun(ctx, claim, learning.TrainingResult{
		TrainingDataCount: result.Rows, Metrics: metrics, ModelVersion: published.Version(), Used: verdicts,
	})
	if err != nil {
		return err
	}
	t.log.InfoContext(ctx, "models trained", "training_run_id", claim.RunID, "model_version", published.Version(),
		"rows", result.Rows, "verdicts", len(verdicts), "anomaly", result.Metrics.Anomaly.Reason, "forecasting", result.Metrics.Forecasting.Reason)
	return nil
}

// history reads a sample of a customer's readings, node after node. A customer of less
// than a week has none in most of the sample's stretches: then the newest readings are
// read, as many as nodes that send twice a minute would have there.
func (t *Train) history(ctx context.Context, customer int64, now time.Time) ([]learn.NodeHistory, error) {
	placed, err := t.runs.PlacedNodes(ctx, customer)
	if err != nil || len(placed) == 0 {
		return nil, err
	}
	nodes := make([]readings.NodeRef, len(placed))
	for i, node := range placed {
		nodes[i] = node.NodeRef
	}
	rows := min(maxRows, max(t.rows, len(nodes)*minReadingsPerNode))
	sampled, n, err := collect(t.readings.Sample(ctx, nodes, now.Add(-historySpan), now, rows), maxRows)
	if err != nil || n >= rows/2 {
		return sampled, err
	}
	span := time.Duration(rows/len(nodes)) * 30 * time.Second
	newest, m, err := collect(t.readings.Ranges(ctx, nodes, now.Add(-min(span, historySpan)), now), maxRows)
	if err != nil || m > n {
		return newest, err
	}
	return sampled, nil
}

// collect groups readings, which come node after node, and counts them. It stops at most of
// them. They are as measured, as detection observes them.
func collect(all iter.Seq2[reading.Reading, error], most int) (nodes []learn.NodeHistory, rows int, err error) {
	for r, err := range all {
		if err != nil {
			return nil, 0, fmt.Errorf("history: %w", err)
		}
		if rows == most {
			break
		}
		if len(nodes) == 0 || r.NodeID != nodes[len(nodes)-1].NodeID {
			nodes = append(nodes, learn.NodeHistory{NodeID: r.NodeID})
		}
		last := &nodes[len(nodes)-1]
		last.Readings = append(last.Readings, r.AsMeasured())
		rows++
	}
	for _, node := range nodes { // of several channels, one after the other
		slices.SortStableFunc(node.Readings, func(a, b reading.Reading) int { return a.Time.Compare(b.Time) })
	}
	return nodes, rows, nil
}

// judged finds the readings that have verdicts, with their windows, oldest first. Readings
// that are gone or dated after a hold's end, and predictions of other models, are left out.
func (t *Train) judged(ctx context.Context, verdicts []learning.Verdict) ([]learn.Labelled, error) {
	stretches := stretchesOf(verdicts)
	found := make([][]learn.Labelled, len(stretches))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelReads)
	for i, s := range stretches {
		group.Go(func() (err error) {
			defer parallel.Recover(&err)
			found[i], err = t.readWindows(ctx, s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("readings of verdicts: %w", err)
	}
	all := slices.Concat(found...)
	slices.SortStableFunc(all, func(a, b learn.Labelled) int { return a.Reading.Time.Compare(b.Reading.Time) })
	return all, nil
}

const windowSpan = time.Duration(reading.MaxWindowAge * float64(time.Second))

// stretchesOf groups the verdicts of one node whose windows overlap: they are read at once,
// within one hold.
func stretchesOf(verdicts []learning.Verdict) (stretches [][]learning.Verdict) {
	verdicts = slices.DeleteFunc(slices.Clone(verdicts), func(v learning.Verdict) bool { return v.MessageID == "" })
	slices.SortFunc(verdicts, func(a, b learning.Verdict) int {
		return cmp.Or(cmp.Compare(a.SensorID, b.SensorID), cmp.Compare(a.Channel, b.Channel), a.Time.Compare(b.Time))
	})
	first := 0
	for i := range verdicts {
		if i+1 < len(verdicts) {
			v, next := verdicts[i], verdicts[i+1]
			if v.Visible() == next.Visible() && v.SensorID == next.SensorID && next.Time.Sub(v.Time) <= windowSpan {
				continue
			}
		}
		stretches, first = append(stretches, verdicts[first:i+1]), i+1
	}
	return stretches
}

func (t *Train) readWindows(ctx context.Context, stretch []learning.Verdict) (found []learn.Labelled, err error) {
	node := readings.NodeRef{ID: stretch[0].SensorID, Visible: []reading.Span{stretch[0].Visible()}}
	start, end := stretch[0].Time.Add(-windowSpan), stretch[len(stretch)-1].Time.Add(reading.Precision)
	var series []reading.Reading
	for r, err := range t.readings.Range(ctx, node, start, end) {
		if err != nil {
			return nil, err
		}
		series = append(series, r.AsMeasured())
	}
	wanted := map[reading.Identity]learning.Verdict{}
	for _, v := range stretch {
		wanted[reading.Reading{Channel: v.Channel, NodeID: v.SensorID, MessageID: v.MessageID, Time: reading.TruncateTime(v.Time)}.Identity()] = v
	}
	for i, w := range features.Windows(series) {
		if v, ok := wanted[series[i].Identity()]; ok {
			delete(wanted, series[i].Identity())
			found = append(found, learn.Labelled{
				Reading: series[i], Anomalous: v.Anomalous(), Weight: v.Weight,
				Window: reading.Window{Age: slices.Clone(w.Age), Temperature: slices.Clone(w.Temperature), Humidity: slices.Clone(w.Humidity)},
			})
		}
	}
	return found, nil
}
