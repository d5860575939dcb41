package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// Readings of the demo's past are this far apart, twice as far before its last week, and in its last
// hour as far as those of nodes, so that nothing changes when these take over.
const (
	pastInterval = 5 * time.Minute
	lastWeek     = 7 * 24 * time.Hour
	recentPast   = time.Hour
)

// pastMark is a file that says that the demo's past is complete.
func (s *System) pastMark() string { return filepath.Join(s.options.DataDir, "past.complete") }

// pastOutbox is the folder of the past's gateway, which goes when the past is complete.
func (s *System) pastOutbox() string { return filepath.Join(s.options.DataDir, "past") }

// hasPast reports whether the demo begins with a past, which only nodes of speed 1 have.
func (o *Options) hasPast() bool {
	return o.History > 0 && o.Nodes > 0 && (o.Speed == 0 || o.Speed == 1)
}

// addPastHeader adds a header to each answer that tells the page how much of the past is sent.
// Only this program sends it.
func (s *System) addPastHeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arriving := s.arriving(); arriving != "" {
			w.Header().Set("Coldaisle-Past", arriving)
		}
		next.ServeHTTP(w, r)
	})
}

// arriving says how much of the past is sent; it is empty when the past is complete.
func (s *System) arriving() string {
	select {
	case <-s.pastOver:
		return ""
	default:
		return fmt.Sprintf("Simulated readings of the last %.3g days are arriving: %d %%.", s.options.History.Hours()/24, s.pastDone.Load())
	}
}

// past is a pipeline whose clock shows the time of the readings that pass through it: a gateway, and the
// functions, to which its readings are pushed at once. All is dated and judged as if it came live.
type past struct {
	handlers map[string]push.HandleFunc
	now      atomic.Pointer[time.Time]
	number   atomic.Int64 // of messages
}

func (p *past) clock() time.Time { return *p.now.Load() }

func (p *past) publishReading(ctx context.Context, m gateway.Message) error {
	return p.push(ctx, m.NodeID, m.Data, "ingest", "detect")
}

// Publish implements [detect.Publisher].
func (p *past) Publish(ctx context.Context, e alert.Event) error {
	data, err := wire.EncodeAlert(e)
	if err != nil {
		return fmt.Errorf("encode an alert: %w", err)
	}
	return p.push(ctx, e.NodeID, data, "storealert")
}

func (p *past) push(ctx context.Context, node string, data []byte, functions ...string) error {
	m := push.Message{
		ID: fmt.Sprint("past-", p.number.Add(1)), Data: data, Attributes: map[string]string{wire.NodeIDAttribute: node},
		PublishTime: p.clock(), DeliveryAttempt: 1,
	}
	for _, function := range functions {
		if err := p.handlers[function](ctx, m); err != nil {
			return fmt.Errorf("%s: %w", function, err)
		}
	}
	return nil
}

// probe pushes the probe, as Cloud Scheduler does: it shows that the service is not late, and what is due
// by the clock is written with it.
func (p *past) probe(ctx context.Context) error {
	return p.push(ctx, reading.ProbeNodeID, []byte(jobs()["probe"].data), "ingest", "detect")
}

// backfill sends what the simulated nodes measured since a time through the pipeline, and records
// how much of it is done. What an earlier start sent is not sent again.
func (s *System) backfill(ctx context.Context, begin time.Time) error {
	var from time.Time
	if err := s.Pool.QueryRow(ctx, `
		SELECT greatest(@begin::timestamptz, max(timestamp) + interval '1 second')
		FROM sensor_data.readings WHERE node_id <> @probe AND timestamp < @now`,
		pgx.StrictNamedArgs{"begin": begin, "probe": reading.ProbeNodeID, "now": s.options.Clock()}).Scan(&from); err != nil {
		return fmt.Errorf("newest reading: %w", err)
	}
	p := &past{}
	p.now.Store(&from)
	p.handlers = s.handlers(s.pipeline, p, coalesce.Wait{}, p.clock)
	kept, err := outbox.Open(s.pastOutbox(), outbox.Options{Retain: gateway.OutboxRetention, Clock: p.clock})
	if err != nil {
		return fmt.Errorf("the past's gateway: %w", err)
	}
	defer func() { _ = kept.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the past's gateway: %w", err)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var components errgroup.Group
	site := gateway.New(gateway.Config{Batches: gateway.SourcesFile{Sources: s.sources(urlOf(listener))}}, gateway.PublishFunc(p.publishReading), kept, p.clock, s.log)
	components.Go(func() error { return site.Run(running) })
	components.Go(func() error { return gateway.Serve(running, listener, site, s.log) })
	step := func(at time.Time) error {
		p.now.Store(&at)
		s.pastDone.Store(int64(100 * at.Sub(begin).Seconds() / s.options.Clock().Sub(begin).Seconds()))
		return p.probe(ctx)
	}
	for _, part := range []struct{ until, every time.Duration }{{lastWeek, 2 * pastInterval}, {recentPast, pastInterval}, {0, nodesim.Interval}} {
		to := s.options.Clock().Add(-part.until) // the present moves on meanwhile
		if err != nil || to.Before(from) {       // an earlier start came so far
			continue
		}
		err = s.Nodes.Backfill(ctx, urlOf(listener), from, to, part.every, step)
		from = to
	}
	cancel()
	return errors.Join(err, components.Wait())
}

// sources allow the demo's host, which measures temperature alone, to send batches to a gateway.
func (s *System) sources(base string) []gateway.Source {
	u, err := url.Parse(base)
	if err != nil || !s.options.hasPast() {
		return nil
	}
	return []gateway.Source{{Name: "Simulated host", Networks: []string{u.Hostname()}, MaxNodes: 1}}
}

func cooling(room string, start time.Time, lasts time.Duration) fault.Fault {
	return fault.Fault{Kind: fault.Cooling, Room: room, Start: start, End: start.Add(lasts), Peak: 14, Constant: 15 * time.Minute}
}

// pastFaults are what went wrong at the demo's site.
func pastFaults(begin time.Time, lasts time.Duration) []fault.Fault {
	at := func(share float64) time.Time { return begin.Add(time.Duration(share * float64(lasts))) }
	return []fault.Fault{
		cooling("room2", at(0.3), 25*time.Minute),
		{Kind: fault.Leak, Room: "room3", Start: at(0.55), End: at(0.55).Add(min(lasts/50, 200*time.Minute)), Peak: 9, Constant: 40 * time.Minute},
		{Kind: fault.Stuck, Room: "room1", Node: "room1-node3", Start: at(0.7), End: at(0.7).Add(min(lasts/33, 5*time.Hour))},
		cooling("room1", at(0.88), 15*time.Minute),
	}
}

// presentFaults happen while somebody looks at the demo, the first after two minutes.
func presentFaults(now time.Time) []fault.Fault {
	first := now.Add(2 * time.Minute)
	return []fault.Fault{
		cooling("room1", first, 10*time.Minute),
		{Kind: fault.Stuck, Room: "room3", Node: "room3-node2", Start: first.Add(25 * time.Minute), End: first.Add(85 * time.Minute)},
		cooling("room2", first.Add(50*time.Minute), 10*time.Minute),
		{Kind: fault.Leak, Room: "room3", Start: first.Add(100 * time.Minute), End: first.Add(160 * time.Minute), Peak: 9, Constant: 20 * time.Minute},
	}
}

// hotFaults happen at a demo without a past, whose only limit is the default of 50 °C. The first room
// passes it within half a minute, so that a new user sees an alert at once, and all of them at night.
func hotFaults(now time.Time, speed float64) []fault.Fault {
	return []fault.Fault{
		{Kind: fault.Cooling, Room: "room1", Start: now, End: now.Add(20 * time.Minute), Peak: 36, Constant: time.Duration(15 * speed * float64(time.Second))},
		{Kind: fault.Nightly, Start: now.Add(6 * time.Hour), End: now.AddDate(100, 0, 0), Peak: 36, Constant: 30 * time.Minute},
	}
}

// setUp gives the demo's customer limits, a host in place of a node, a sensor whose certificate
// has expired, and maintenance in the past, once.
func (s *System) setUp(ctx context.Context, user *APIUser, begin time.Time) error {
	var rules []map[string]any
	if err := user.Call(ctx, http.MethodGet, "/api/v1/rules", nil, &rules); err != nil {
		return err
	}
	if slices.ContainsFunc(rules, func(rule map[string]any) bool { return rule["threshold"] == false }) {
		return nil
	}
	var site struct {
		Rooms []struct {
			ID int64 `json:"id"`
		} `json:"rooms"`
	}
	if err := user.Call(ctx, http.MethodGet, "/api/v1/overview", nil, &site); err != nil {
		return err
	}
	for _, rule := range rules {
		if rule["quantity"] != "humidity" {
			continue
		}
		rule["limit"] = 70
		if err := user.Call(ctx, http.MethodPut, fmt.Sprintf("/api/v1/rules/%.0f", rule["id"]), rule, nil); err != nil {
			return err
		}
	}
	rooms, last := s.Nodes.Rooms(), site.Rooms[len(site.Rooms)-1].ID
	host := rooms[len(rooms)-1]
	if err := user.Call(ctx, http.MethodPut, "/api/v1/sensors/update_sensor/"+host[len(host)-1], map[string]any{
		"name": "Host 1", "type": "Server's own sensor", "room_id": last,
	}, nil); err != nil {
		return err
	}
	type call struct {
		path string
		body any
	}
	limit := func(limit float64, severity string, held time.Duration) call {
		return call{"/api/v1/rules", map[string]any{
			"quantity": "temperature", "direction": "above", "limit": limit, "for_s": held.Seconds(), "clear_margin": 0.5, "clear_for_s": 120,
			"severity": severity, "enabled": true,
		}}
	}
	now, filters := s.options.Clock(), begin.Add(s.options.History/2).UTC()
	calls := []call{
		{"/api/v1/corrections", map[string]any{
			"sensor_id": rooms[0][1], "from": now.Add(10 * time.Minute), "temperature_offset": -0.2, "humidity_offset": 1,
			"certificate": "CAL-2291", "calibrated_by": "House laboratory", "due_date": now.AddDate(0, -3, 0).Format(time.DateOnly),
		}},
		{"/api/v1/maintenance", map[string]any{
			"start_time": filters, "duration_s": 2 * time.Hour / time.Second, "weekdays": []time.Weekday{filters.Weekday()}, "room_ids": []int64{last},
			"comment": "Filters are changed",
		}},
		// Healthy air of the rooms keeps these limits. They are last: where they exist, so does the rest.
		limit(30, "warning", 2*time.Minute), limit(32, "critical", time.Minute),
	}
	for _, c := range calls {
		if err := user.Call(ctx, http.MethodPost, c.path, c.body, nil); err != nil {
			return err
		}
	}
	return nil
}

// demoPast gives the demo a past: readings with their incidents through the pipeline, verdicts by the
// API, and a training run.
func (s *System) demoPast(ctx context.Context, user *APIUser) error {
	begin := s.options.Clock().Add(-s.options.History)
	if err := s.setUp(ctx, user, begin); err != nil {
		return fmt.Errorf("set the demo up: %w", err)
	}
	// The sensors were there before their first reading; the API has no such way to add them.
	if _, err := s.Pool.Exec(ctx, `
		WITH held AS (UPDATE open_holds SET held_from = @begin WHERE node_id = ANY(@nodes) AND held_from > @begin)
		UPDATE sensors SET placed_at = @begin WHERE node_id = ANY(@nodes) AND placed_at > @begin`,
		pgx.StrictNamedArgs{"begin": begin.Add(-time.Hour), "nodes": slices.Concat(s.Nodes.Rooms()...)}); err != nil {
		return fmt.Errorf("date the demo's sensors: %w", err)
	}
	if err := s.backfill(ctx, begin); err != nil {
		return fmt.Errorf("the demo's past: %w", err)
	}
	if err := s.judgePast(ctx, user); err != nil {
		return err
	}
	if err := os.RemoveAll(s.pastOutbox()); err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	return os.WriteFile(s.pastMark(), nil, 0o600) //nolint:wrapcheck // it names the file
}

// judgePast gives verdicts on what was predicted, as somebody who knows the faults does, and trains
// models.
func (s *System) judgePast(ctx context.Context, user *APIUser) error {
	var predictions []struct {
		ID        int64     `json:"id"`
		SensorID  string    `json:"sensor_id"`
		Timestamp time.Time `json:"timestamp"`
		Anomaly   bool      `json:"anomaly_predicted"`
	}
	// Fewer than the hundred that begin a run by themselves: the run at the end has them all.
	if err := user.Call(ctx, http.MethodGet, "/api/v1/prediction-feedback?status=unvalidated&limit=90", nil, &predictions); err != nil {
		return err
	}
	for _, p := range predictions {
		verdict := "not_ok"
		if s.Nodes.Faulty(p.SensorID, p.Timestamp) == p.Anomaly {
			verdict = "ok"
		}
		if err := user.Call(ctx, http.MethodPut, fmt.Sprint("/api/v1/prediction-feedback/", p.ID), map[string]string{"feedback": verdict}, nil); err != nil {
			return err
		}
	}
	if err := user.Call(ctx, http.MethodPost, "/api/v1/incidents/seen", map[string]any{}, nil); err != nil {
		return err
	}
	if err := user.Call(ctx, http.MethodPost, "/api/v1/ml/retraining/trigger", nil, nil); err != nil {
		s.log.WarnContext(ctx, "the demo's models are not trained", "error", err.Error())
	}
	return nil
}
