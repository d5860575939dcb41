package pgreadings_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/tooltest"
)

// present is the clock that a store under test is given.
func present() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// conformance tests what the API, the functions and training rely on, of a table that is
// empty and has [present] as its clock. All tests share it: each has node ids of its own.
func conformance(t *testing.T, store *pgreadings.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *pgreadings.Store, string){
		"range":                          rangeIsHalfOpen,
		"ranges of many nodes":           rangesOfMany,
		"buckets":                        buckets,
		"statistics":                     stats,
		"spans bound every question":     spansBound,
		"copies are folded":              copiesAreFolded,
		"values and times survive":       exact,
		"what was measured stays beside": corrected,
		"more than a page":               long,
		"concurrent appends":             concurrent,
		"a cancelled context":            cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, store, strings.ReplaceAll(name, " ", "-"))
		})
	}
}

// rangesOfMany reads three nodes at once, one of them in two channels.
func rangesOfMany(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	first := present().Add(-time.Hour)
	want := []reading.Reading{
		at(node+"-a", "m1", first, 20, 40), at(node+"-a", "m2", first.Add(time.Minute), 21, 40),
		at(node+"-b", "m1", first.Add(time.Minute), 22, 40), signed(at(node+"-b", "m1", first, 23, 40), 7),
	}
	add(t, store, append(slices.Clone(want), at(node+"-b", "m1", first.Add(2*time.Minute), 22, 40), // a copy
		at(node+"-a", "early", first.Add(-time.Second), 1, 1), at(node+"-a", "late", present(), 1, 1), at(node+"-c", "m", first, 1, 1))...)
	nodes := []readings.NodeRef{open(node + "-b"), open(node + "-a"), {ID: node + "-c"}, open(node + "-none")}
	nodes[0].Visible = append(nodes[0].Visible, reading.Span{Channel: 7})
	must.Equal(t, "", want, gather(t, store.Ranges(t.Context(), nodes, first, present())))
	for _, err := range store.Ranges(t.Context(), nodes, first, present()) {
		must.Do(t, err)
		break
	}
}

func at(node, message string, when time.Time, temperature, humidity float64) reading.Reading {
	return reading.Reading{NodeID: node, MessageID: message, Time: when, Temperature: temperature, Humidity: humidity}
}

// signed is a reading of a channel.
func signed(r reading.Reading, channel reading.Channel) reading.Reading {
	r.Channel = channel
	return r
}

// open is a node all of whose readings in the open channel are visible.
func open(id string) readings.NodeRef { return readings.NodeRef{ID: id, Visible: []reading.Span{{}}} }

func add(t *testing.T, store *pgreadings.Store, rows ...reading.Reading) {
	t.Helper()
	must.Do(t, store.Append(t.Context(), rows))
}

func collect(t *testing.T, store *pgreadings.Store, node readings.NodeRef, start, end time.Time) []reading.Reading {
	t.Helper()
	return gather(t, store.Range(t.Context(), node, start, end))
}

// gather reads to the end.
func gather(t *testing.T, all iter.Seq2[reading.Reading, error]) (found []reading.Reading) {
	t.Helper()
	for r, err := range all {
		must.Do(t, err)
		found = append(found, r)
	}
	return found
}

func rangeIsHalfOpen(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	start := present().Add(-time.Hour)
	var rows []reading.Reading
	for i := range 5 {
		rows = append(rows, at(node, strconv.Itoa(i), start.Add(time.Duration(i)*time.Minute), float64(20+i), 40))
	}
	shuffled := slices.Clone(rows)
	slices.Reverse(shuffled)
	add(t, store, shuffled...)
	must.Equal(t, "range", rows[1:3], collect(t, store, open(node), start.Add(time.Minute), start.Add(3*time.Minute)))
	for _, err := range store.Range(t.Context(), open(node), start, present()) {
		must.Do(t, err)
		break // which leaves the store as it was
	}
	must.Equal(t, "an empty range has readings", 0, len(collect(t, store, open(node), start, start)))
	must.Equal(t, "a range that ends before it starts has readings", 0, len(collect(t, store, open(node), start.Add(time.Hour), start)))
}

// of are statistics of so many readings: average, least and most of the temperature, and of the humidity.
func of(temperature, coldest, hottest, humidity, driest, dampest float64, count int64) readings.Stats {
	return readings.Stats{
		AvgTemperature: temperature, MinTemperature: coldest, MaxTemperature: hottest, TemperatureCount: count,
		AvgHumidity: humidity, MinHumidity: driest, MaxHumidity: dampest, HumidityCount: count, Count: count,
	}
}

func buckets(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	start := present().Add(-time.Hour)
	add(t, store,
		at(node, "a", start, 20, 40), at(node, "b", start.Add(time.Minute), 22, 44),
		// nothing in the second quarter
		at(node, "c", start.Add(30*time.Minute), 30, 50),
		at(node, "d", start.Add(time.Hour-time.Microsecond), 31, 51),
		at(node, "e", start.Add(time.Hour), 99, 99))
	got := must.Get(store.Buckets(t.Context(), open(node), start, start.Add(time.Hour), 4))(t)
	want := []readings.Bucket{
		{Start: start, Stats: of(21, 20, 22, 42, 40, 44, 2)},
		{Start: start.Add(30 * time.Minute), Stats: of(30, 30, 30, 50, 50, 50, 1)},
		{Start: start.Add(45 * time.Minute), Stats: of(31, 31, 31, 51, 51, 51, 1)},
	}
	must.Equal(t, "", want, got)
	// A width that does not come out even makes no more buckets than asked.
	for n := 1; n <= 7; n++ {
		got := must.Get(store.Buckets(t.Context(), open(node), start, start.Add(time.Hour), n))(t)
		must.Hold(t, len(got) <= n && len(got) != 0, "asked for %d buckets, got %d", n, len(got))
	}
}

func stats(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	now := present()
	add(t, store,
		at(node, "a", now.Add(-30*time.Minute), 20, 40),
		at(node, "b", now.Add(-2*time.Hour), 30, 60),
		at(node, "c", now, 99, 99))
	got := must.Get(store.Stats(t.Context(), open(node), now,
		[]time.Time{now.Add(-24 * time.Hour), now.Add(-time.Minute), now.Add(-time.Hour)}))(t)
	must.Equal(t, "", []readings.Stats{of(25, 20, 30, 50, 40, 60, 2), {}, of(20, 20, 20, 40, 40, 40, 1)}, got)
	must.Equal(t, "buckets of nothing", 0, len(must.Get(store.Buckets(t.Context(), open(node), now.Add(-time.Minute), now, 10))(t)))
	must.Equal(t, "buckets of an empty range", 0, len(must.Get(store.Buckets(t.Context(), open(node), now, now, 10))(t)))
}

func exact(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	now := present()
	rows := []reading.Reading{
		at(node, "least", now.Add(-3*time.Microsecond), reading.MinTemperature, reading.MinHumidity),
		at(node, "most", now.Add(-2*time.Microsecond), reading.MaxTemperature, reading.MaxHumidity),
		at(node, `odd "id" \ ' ;--`, now.Add(-time.Microsecond), math.Nextafter(21, 22), 0.1+0.2),
		at(node, "z", now.Add(-time.Microsecond), 21, reading.Missing()),
	}
	add(t, store, rows...)
	must.Equal(t, "", rows, collect(t, store, open(node), now.Add(-time.Second), now))
}

// corrected stores readings to which a correction applied: copies are known by what was measured.
func corrected(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	now := present()
	measured := func(r reading.Reading, temperature, humidity float64) reading.Reading {
		return r.WithUncorrected(reading.Pointer(temperature), reading.Pointer(humidity))
	}
	before := at(node, "a", now.Add(-10*time.Minute), 20, 40)
	want := []reading.Reading{
		before,
		measured(at(node, "b", now.Add(-8*time.Minute), 20.5, reading.Missing()), 20.004, reading.Missing()),
		measured(at(node, "c", now.Add(-7*time.Minute), 20.5, 100), 20, 98), // clamped alike, and not the same
		measured(at(node, "c", now.Add(-6*time.Minute), 20.5, 100), 20, 99),
	}
	add(t, store, append(slices.Clone(want), measured(at(node, "a", now.Add(-9*time.Minute), 20.5, 42), 20, 40))...)
	must.Equal(t, "", want, collect(t, store, open(node), now.Add(-time.Hour), now))
	summary := must.Get(store.Stats(t.Context(), open(node), now, []time.Time{now.Add(-time.Hour)}))(t)
	if s := summary[0]; s.Count != 4 || s.MaxTemperature != 20.5 || s.MinTemperature != 20 || s.MaxHumidity != 100 {
		t.Errorf("statistics %+v", s)
	}
}

// long reads a range that a store may fetch in several pages. Several readings have
// the same time, so that a page can end between them.
func long(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	start := present().Add(-3 * time.Hour)
	var rows []reading.Reading
	for i := range 12_003 {
		rows = append(rows, at(node, fmt.Sprintf("%06d", i), start.Add(time.Duration(i/3)*time.Second), 20, 40))
	}
	for chunk := range slices.Chunk(rows, 500) {
		add(t, store, chunk...)
	}
	must.Equal(t, "", rows, collect(t, store, open(node), start, present()))
}

func concurrent(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	const writers, each = 16, 20
	start := present().Add(-26 * time.Hour)
	var group sync.WaitGroup
	for range writers { // all write the same rows
		group.Go(func() {
			for i := range each {
				r := at(node, strconv.Itoa(i), start.Add(time.Duration(i)*time.Hour), 20, 40)
				must.Fail(t, "append", store.Append(t.Context(), []reading.Reading{r}), nil)
			}
		})
	}
	group.Wait()
	must.Equal(t, "readings", each, len(collect(t, store, open(node), start, present())))
}

func cancelled(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Hold(t, store.Append(ctx, []reading.Reading{at(node, "a", present(), 20, 40)}) != nil,
		"appended with a cancelled context")
	must.Hold(t, must.Err(store.Stats(ctx, open(node), present(), []time.Time{present().Add(-time.Hour)})) != nil,
		"answered with a cancelled context")
	failed := false
	for _, err := range store.Range(ctx, open(node), present().Add(-time.Hour), present()) {
		failed = failed || err != nil
	}
	must.Hold(t, failed, "a range with a cancelled context ended without an error")
}

// counted is the sum of the readings of buckets.
func counted(parts []readings.Bucket) (sum int64) {
	for _, part := range parts {
		sum += part.Count
	}
	return sum
}

// spansBound stores the same readings of one node id in three channels, every
// minute of an hour, and asks for what is visible to different customers.
func spansBound(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	start := present().Add(-time.Hour)
	minute := func(i int) time.Time { return start.Add(time.Duration(i) * time.Minute) }
	var rows []reading.Reading
	for channel := range reading.Channel(3) {
		for i := range 60 {
			rows = append(rows, signed(at(node, strconv.Itoa(i), minute(i), float64(i), 40+float64(channel)), channel))
		}
	}
	add(t, store, rows...)
	for name, visible := range map[string][]reading.Span{
		"nothing":                    nil,
		"the open channel":           {{}},
		"an enrolled customer":       {{Channel: 1}},
		"another":                    {{Channel: 2}},
		"a customer of no readings":  {{Channel: 3}},
		"a hold of today":            {{From: minute(50)}},
		"a hold that has ended":      {{Until: minute(10)}},
		"enrolled, with a hold":      {{Channel: 1}, {From: minute(50)}},
		"enrolled, with three holds": {{Channel: 2}, {Until: minute(10)}, {From: minute(20), Until: minute(30)}, {From: minute(58)}},
	} {
		ref := readings.NodeRef{ID: node, Visible: visible}
		var want []reading.Reading
		for i := range 60 {
			for channel := range 3 {
				r := rows[channel*60+i]
				if slices.ContainsFunc(visible, func(s reading.Span) bool {
					return s.Channel == r.Channel && s.Contains(r.Time)
				}) {
					want = append(want, r)
				}
			}
		}
		must.Equal(t, name+": range", want, collect(t, store, ref, start, present()))
		count := int64(len(want))
		must.Equal(t, name+": buckets count", count, counted(must.Get(store.Buckets(t.Context(), ref, start, present(), 7))(t)))
		summary := must.Get(store.Stats(t.Context(), ref, present(), []time.Time{start, start.Add(-time.Hour)}))(t)
		must.Equal(t, name+": statistics count", [2]int64{count, count}, [2]int64{summary[0].Count, summary[1].Count})
	}
}

// copiesAreFolded holds that a reading which a node sent through two gateways
// counts once, and that nothing else is taken for a copy.
func copiesAreFolded(t *testing.T, store *pgreadings.Store, node string) {
	t.Helper()
	start := present().Add(-2 * time.Hour)
	kept := []reading.Reading{
		at(node, "a", start.Add(-9*time.Minute), 20, 40), // before the range
		at(node, "b", start, 21, 41),
		at(node, "b", start.Add(time.Minute), 21, reading.Missing()), // another value
		at(node, "c", start.Add(2*time.Minute), 21, 41),              // another message id
		at(node, "b", start.Add(30*time.Minute), 21, 41),             // too late to be a copy: the node has counted on
	}
	enrolled := signed(at(node, "b", start.Add(3*time.Minute), 21, 41), 1) // another channel is another node
	copies := []reading.Reading{
		at(node, "a", start.Add(readings.FoldWithin-9*time.Minute-time.Microsecond), 20, 40),
		at(node, "b", start.Add(5*time.Minute), 21, 41),
		at(node, "b", start.Add(6*time.Minute), 21, 41),
		at(node, "b", start.Add(7*time.Minute), 21, reading.Missing()),
		at(node, "b", start.Add(39*time.Minute), 21, 41),
	}
	add(t, store, copies...)
	add(t, store, kept...)
	add(t, store, enrolled)
	must.Equal(t, "range", kept[1:], collect(t, store, open(node), start, present()))
	parts := must.Get(store.Buckets(t.Context(), open(node), start, present(), 1))(t)
	must.Hold(t, len(parts) == 1 && parts[0].Count == 4, "buckets %+v", parts)
	summary := must.Get(store.Stats(t.Context(), open(node), present(), []time.Time{start, start.Add(20 * time.Minute), start.Add(-time.Hour)}))(t)
	must.Hold(t, summary[0].Count == 4 && summary[1].Count == 1 && summary[2].Count == 5, "statistics %+v", summary)
}

// sampling holds a sample to what it promises: few days, all nodes, many hours, no
// more readings than asked for, none that is not visible, and the same one again.
func sampling(t *testing.T, store *pgreadings.Store) {
	t.Helper()
	start := present().AddDate(0, 0, -28)
	var nodes []readings.NodeRef
	for i := range 8 {
		id := fmt.Sprintf("sampled-%d", i)
		nodes = append(nodes, readings.NodeRef{ID: id, Visible: []reading.Span{{Channel: reading.Channel(i % 2), From: start.AddDate(0, 0, i)}}})
		var rows []reading.Reading
		for when := start; when.Before(present()); when = when.Add(time.Hour) {
			for channel := range reading.Channel(2) {
				rows = append(rows, signed(at(id, strconv.Itoa(len(rows)), when, 20+float64(channel), 40), channel))
			}
		}
		must.Do(t, store.Append(t.Context(), rows))
	}
	sample := func(rows int) []reading.Reading {
		return gather(t, store.Sample(t.Context(), nodes, start, present(), rows))
	}
	all := sample(8 * 8 * 240) // of each node eight stretches of two readings
	days, hours, weeks, perNode := map[string]bool{}, map[int]bool{}, map[int]bool{}, map[string]int{}
	for _, r := range all {
		days[r.Time.Format(time.DateOnly)], hours[r.Time.Hour()], weeks[int(r.Time.Sub(start)/(7*24*time.Hour))] = true, true, true
		perNode[r.NodeID]++
		node := nodes[r.NodeID[len(r.NodeID)-1]-'0']
		span := node.Visible[0]
		must.Hold(t, r.Channel == span.Channel && !r.Time.Before(span.From), "not visible: %+v", r)
	}
	must.Hold(t, len(days) == 4 && len(weeks) == 4 && len(hours) == 24 && len(perNode) == len(nodes) && perNode["sampled-0"] == 8*2,
		"%d days, %d weeks, %d hours, %v", len(days), len(weeks), len(hours), perNode)
	must.Equal(t, "another sample (-before +again)", all, sample(8*8*240))
	few := sample(16)
	must.Hold(t, len(few) <= 16 && len(few) >= 8, "%d readings of 16", len(few))
}

// TestBigQuery holds the table with BigQuery as its archive to what every table does, on an emulator
// (BIGQUERY_EMULATOR_HOST and BIGQUERY_STORAGE_EMULATOR_HOST, its REST and gRPC servers; with -parallel 1, its
// database takes one writer at a time) or in a real project (BIGQUERY_TEST_PROJECT, where it makes a dataset and
// deletes it again). With neither it is skipped: what is sent and received is then tested against package bqtest,
// the statements by a parser and, with build tag googlesql, by Google's analyzer.
func TestBigQuery(t *testing.T) {
	t.Parallel()
	c := bqreadings.Config{
		Dataset: "test_" + strings.ToLower(rand.Text()), Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 20 * time.Second,
		Emulator:      os.Getenv("BIGQUERY_EMULATOR_HOST"), StorageEmulator: os.Getenv("BIGQUERY_STORAGE_EMULATOR_HOST"),
	}
	project := os.Getenv("BIGQUERY_TEST_PROJECT")
	switch {
	case c.Emulator != "" && c.StorageEmulator != "":
		project = "test"
	case project == "":
		tooltest.Skip(t, "neither BIGQUERY_EMULATOR_HOST with BIGQUERY_STORAGE_EMULATOR_HOST nor BIGQUERY_TEST_PROJECT is set")
	default:
		c.Emulator, c.StorageEmulator = "", ""
	}
	for name, test := range map[string]func(t *testing.T, archive *bqreadings.Store){ //nolint:paralleltest // the emulator takes one writer at a time
		"store": func(t *testing.T, archive *bqreadings.Store) { //nolint:thelper // the test itself
			conformance(t, pgreadings.New(store.New(pgtest.New(t)), archive, present))
		},
		"archive alone": func(t *testing.T, archive *bqreadings.Store) { //nolint:thelper // the test itself
			// Nothing is raw in PostgreSQL for a clock that is far ahead.
			sampling(t, pgreadings.New(store.New(pgtest.New(t)), archive, func() time.Time { return present().AddDate(1, 0, 0) }))
		},
		"history": func(t *testing.T, archive *bqreadings.Store) { //nolint:thelper // the test itself
			history(t, func(clock func() time.Time) *pgreadings.Store {
				return pgreadings.New(store.New(pgtest.New(t)), archive, clock)
			})
		},
	} {
		c := c
		c.Dataset += "_" + strings.ReplaceAll(name, " ", "_")
		t.Run(name, func(t *testing.T) {
			archive := must.Get(bqreadings.Open(context.WithoutCancel(t.Context()), project, c, logging.Discard()))(t)
			t.Cleanup(func() { _ = archive.Close() })
			for range 2 { // the second finds what the first has made
				must.Do(t, archive.Create(t.Context()))
			}
			deleteAtEnd(t, project, c)
			test(t, archive)
		})
	}
}

func deleteAtEnd(t *testing.T, project string, c bqreadings.Config) {
	t.Helper()
	var options []option.ClientOption
	if c.Emulator != "" {
		options = append(options, option.WithEndpoint("http://"+strings.TrimPrefix(c.Emulator, "http://")+"/bigquery/v2/"), option.WithoutAuthentication())
	}
	ctx := context.WithoutCancel(t.Context())
	client := must.Get(bigquery.NewClient(ctx, project, options...))(t)
	t.Cleanup(func() {
		_ = client.Dataset(c.Dataset).DeleteWithContents(ctx)
		_ = client.Close()
	})
}
