package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// from decodes messages where no gateway is enrolled.
var from = origin.New(nil, time.Now, origin.Options{})

// fakeMetadata keeps nothing, or fails. deleted are deleted sensors, and those whose status
// cannot be read.
type fakeMetadata struct {
	err     error
	deleted map[string]error
}

func (m fakeMetadata) StoreReadings(
	ctx context.Context, batch []pipeline.NodeReading, insert func(context.Context, *store.DB, []reading.Reading) error,
) ([]pipeline.Stored, error) {
	stored := make([]pipeline.Stored, len(batch))
	for i, r := range batch {
		err, deleted := m.deleted[r.NodeID]
		if err = errors.Join(m.err, err); err != nil {
			return nil, err
		}
		stored[i].Reading = r.Reading
		if stored[i].Deleted = deleted; !deleted {
			if err := insert(ctx, nil, []reading.Reading{r.Reading}); err != nil {
				return nil, err
			}
		}
	}
	return stored, nil
}

func (m fakeMetadata) RecordProbe(context.Context, time.Time, time.Time) error { return m.err }
func (m fakeMetadata) RecordLate(context.Context, reading.Reading) error       { return m.err }
func (m fakeMetadata) IngestDrill(context.Context, incidents.DrillMessage) (bool, error) {
	return m.err == nil, m.err
}

// keptProbes are the publish times of the probe's readings.
type keptProbes struct {
	fakeMetadata

	published []time.Time
}

func (p *keptProbes) RecordProbe(_ context.Context, published, _ time.Time) error {
	p.published = append(p.published, published)
	return nil
}

// fixedOrigin decodes every message to one reading.
type fixedOrigin reading.Reading

func (o fixedOrigin) Reading(context.Context, push.Message) (reading.Reading, origin.Source, error) {
	return reading.Reading(o), origin.Source{Channel: o.Channel}, nil
}

// TestProbe shows which readings of the probe are kept: open ones, at their publish
// time whatever they say. Contract 5.9.
func TestProbe(t *testing.T) {
	t.Parallel()
	published := time.Date(2026, 11, 20, 12, 0, 1, 0, time.UTC)
	for name, c := range map[string]struct {
		from fixedOrigin
		want []time.Time
	}{
		"of the scheduler":       {fixedOrigin{NodeID: "coldaisle.probe", Time: published}, []time.Time{published}},
		"of an open gateway":     {fixedOrigin{NodeID: "coldaisle.probe", Time: published.Add(-time.Hour)}, []time.Time{published}},
		"of an enrolled gateway": {fixedOrigin{NodeID: "coldaisle.probe", Channel: 7, Time: published}, nil},
	} {
		var states keptProbes
		var log bytes.Buffer
		clock := func() time.Time { return published.Add(1500 * time.Millisecond) }
		step := ingest.New(c.from, &states, &fakeReadings{}, coalesce.Wait{}, clock, logging.New(&log, slog.LevelInfo, ""), nil)
		must.Do(t, step.Handle(t.Context(), push.Message{PublishTime: published}))
		must.Equal(t, "kept "+name, c.want, states.published)
		// What terraform/modules/monitoring/objectives.tf looks for.
		logged := strings.Contains(log.String(), `"message":"probe readable","lateness_s":1.5`)
		must.Equal(t, name+": it is logged: "+log.String(), c.want != nil, logged)
	}
}

// fakeReadings is a table that holds rows, or fails.
type fakeReadings struct {
	rows       []reading.Reading
	err        error
	maintained int
}

func (k *fakeReadings) Maintain(context.Context) error {
	k.maintained++
	return k.err
}

func (k *fakeReadings) Insert(_ context.Context, _ *store.DB, rows []reading.Reading) error {
	if k.err == nil {
		k.rows = append(k.rows, rows...)
	}
	return k.err
}

func (k *fakeReadings) Archive(context.Context, []reading.Reading) error { return k.err }

// TestIngest shows what is stored of a message, under which time, and what is refused: contract 4.6 (no sensor
// of these nodes was ever created), 8.12, 9.10.
func TestIngest(t *testing.T) {
	t.Parallel()
	errAway := errors.New("database is away")
	published := time.Date(2026, 11, 20, 12, 0, 1, 0, time.UTC)
	stored := reading.Reading{NodeID: "n1", MessageID: "m1", Time: published.Add(-time.Second), Temperature: 21.5, Humidity: 40}
	at := func(t time.Time) []reading.Reading { r := stored; r.Time = t; return []reading.Reading{r} }
	const undated = `{"node_id":"n1","id":"m1","temperature":21.5,"humidity":40}`
	// Contract 5.9, 8.12; as terraform has it.
	const scheduled = `{"humidity":0,"message_id":"scheduler","node_id":"coldaisle.probe","temperature":0}`
	ago, limit := time.Date(2019, 2, 3, 4, 5, 6, 789_000_000, time.UTC), published.Add(2*time.Minute)
	dated := func(timestamp string) string {
		return `{"node_id":"n1","message_id":"m1","timestamp":"` + timestamp + `","temperature":21.5,"humidity":40}`
	}
	with := func(window string) string {
		return strings.Replace(dated("2026-11-20T12:00:00Z"), "}", `,"recent":`+window+"}", 1)
	}
	for name, c := range map[string]struct {
		data      string
		fails     error
		away      error // the metadata database, when the state is kept
		want      []reading.Reading
		refused   bool
		permanent bool
	}{
		"a reading":                    {data: dated("2026-11-20T12:00:00Z"), want: at(stored.Time)},
		"no window":                    {data: with(`{"age_s":[30],"temperature":[21],"humidity":[39]}`), want: at(stored.Time)},
		"a malformed window":           {data: with(`"x"`), want: at(stored.Time)},
		"id for message_id, no date":   {data: undated, want: at(published)},
		"held back for years":          {data: dated("2019-02-03T04:05:06.789Z"), want: at(ago)},
		"below the limit of 2 minutes": {data: dated("2026-11-20T12:02:00.999999Z"), want: at(limit.Add(-time.Microsecond))},
		"at the limit of 2 minutes":    {data: dated("2026-11-20T12:02:01Z"), want: at(limit)},
		"above it: its publish time":   {data: dated("2026-11-20T12:02:01.000001Z"), want: at(published)},
		"of 2099: its publish time":    {data: dated("2099-01-01T00:00:00Z"), want: at(published)},
		"no JSON":                      {data: `{`, refused: true, permanent: true},
		"beyond the hardware":          {data: strings.Replace(undated, "21.5", "126", 1), refused: true, permanent: true},
		"without values":               {data: `{"node_id":"n1","id":"m1","temperature":null}`, refused: true, permanent: true},
		"of a deleted sensor":          {data: strings.Replace(undated, "n1", "gone", 1)},
		"its status is not told":       {data: strings.Replace(undated, "n1", "untold", 1), refused: true},
		"its state is not kept":        {data: undated, away: errAway, refused: true},
		"the table is away":            {data: undated, fails: errAway, refused: true},
		"the probe":                    {data: scheduled, fails: errAway},
		"a probe that is not kept":     {data: scheduled, away: errAway, refused: true},
	} {
		table := fakeReadings{err: c.fails}
		step := ingest.New(from, fakeMetadata{c.away, map[string]error{"gone": nil, "untold": errAway}}, &table, coalesce.Wait{}, time.Now, logging.Discard(), nil)
		err := step.Handle(t.Context(), push.Message{ID: "1", Data: []byte(c.data), PublishTime: published})
		refused := [2]bool{err != nil, push.IsPermanent(err)}
		must.Equal(t, fmt.Sprintf("%s is refused, and for good: %v", name, err), [2]bool{c.refused, c.permanent}, refused)
		must.Equal(t, name+" is stored", c.want, table.rows)
	}
}

// TestBatch sends concurrent readings of a sensor that is deleted and created again, of one
// that no gateway of its customer has signed yet, and of nobody's. One row breaks a rule of
// the schema: it fails alone. Contract 4.6.
func TestBatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	metadata := pgtest.NewStores(pool)
	customer, room := metadata.Owner(t, "anna12", "a", "b")
	must.Get(pool.Exec(t.Context(), `ALTER TABLE sensor_data.readings ADD CHECK (message_id <> 'refused')`))(t)
	step := ingest.New(from, metadata, pgreadings.New(pool, nil, time.Now), pipeline.BatchWait(), time.Now, logging.Discard(), nil)
	now := time.Now().UTC().Truncate(time.Second)
	// send sends readings at once and returns the ids of those that are stored, and how many failed.
	send := func(messages ...string) (stored []string, failed int) {
		t.Helper()
		var sending sync.WaitGroup
		var mu sync.Mutex
		for _, message := range messages {
			node, id, _ := strings.Cut(message, " ")
			sending.Go(func() {
				data := must.Get(wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: node, MessageID: id, Time: now, Temperature: 21, Humidity: 40}}))(t)
				if err := step.Handle(t.Context(), push.Message{ID: id, Data: data, PublishTime: now}); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed++
				}
			})
		}
		sending.Wait()
		for _, r := range storedRows(t, pool.Config().ConnString()) {
			stored = append(stored, r.NodeID+" "+r.MessageID)
		}
		slices.Sort(stored)
		return stored, failed
	}
	want := []string{"a 1", "b 1", "c 1"}
	got, failed := send("a 1", "b 1", "c 1", "b 1", "c refused")
	must.Equal(t, "stored", want, got)
	must.Equal(t, "failed", 1, failed)
	must.Do(t, metadata.DeleteSensor(t.Context(), customer, "a"))
	want = append(want, "b 2")
	got, failed = send("a 2", "b 2")
	slices.Sort(want)
	must.Equal(t, "stored after a deletion", want, got)
	must.Equal(t, "failed after a deletion", 0, failed)
	metadata.AddSensors(t, customer, room, "a")
	got, failed = send("a 3")
	must.Hold(t, slices.Contains(got, "a 3") && failed == 0, "created again: %d failed, %v", failed, got)
}

// panicking is a table that panics at a node's readings.
type panicking struct{ fakeReadings }

func (p *panicking) Insert(ctx context.Context, tx *store.DB, rows []reading.Reading) error {
	if rows[0].NodeID == "panics" {
		panic("nil map")
	}
	return p.fakeReadings.Insert(ctx, tx, rows)
}

// TestPanicInABatch: contract 9.5, what panics answers 500, and the messages of its batch are stored.
func TestPanicInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var table panicking
		step := ingest.New(from, fakeMetadata{}, &table, pipeline.BatchWait(), time.Now, logging.Discard(), nil)
		handler := push.Handler(push.Config{Clock: time.Now, Log: logging.Discard()}, step.Handle)
		want := map[string]int{"a": http.StatusNoContent, "b": http.StatusNoContent, "panics": http.StatusInternalServerError}
		got := map[string]int{}
		var mu sync.Mutex
		var sending sync.WaitGroup
		for node := range want {
			sending.Go(func() {
				data := must.Get(wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: node, MessageID: "1", Time: time.Now(), Temperature: 21, Humidity: 40}}))(t)
				status := handler.Receive(t.Context(), push.Message{ID: node, Data: data, PublishTime: time.Now(), DeliveryAttempt: 1})
				mu.Lock()
				defer mu.Unlock()
				got[node] = status
			})
		}
		sending.Wait()
		must.Equal(t, "answers", want, got)
		for _, node := range []string{"a", "b"} {
			must.Hold(t, slices.ContainsFunc(table.rows, func(r reading.Reading) bool { return r.NodeID == node }),
				"%s is not stored", node)
		}
	})
}
