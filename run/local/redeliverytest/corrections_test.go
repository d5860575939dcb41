package redeliverytest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/wire"
)

// judged keeps what detect judges.
type judged struct {
	incidents.Store

	all []incidents.Judged
}

func (j *judged) Judge(ctx context.Context, one incidents.Judged) error {
	j.all = append(j.all, one)
	return j.Store.Judge(ctx, one) //nolint:wrapcheck // stands for it
}

type noAlerts struct{}

func (noAlerts) Publish(context.Context, alert.Event) error { return nil }

// TestCorrectedStreams sends readings out of order, twice and late through ingest and detect,
// while offsets begin in the middle: rows of both stores are a model's, to the last bit, and each
// measured value can be read back. What detect judges is what is stored.
func TestCorrectedStreams(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			correctedStream(t, rand.New(rand.NewPCG(seed, 33)))
		})
	}
}

func correctedStream(t *testing.T, chance *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	appends := bqtest.NewAppendServer(t)
	archive := must.Get(bqreadings.Open(ctx, project, bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 20 * time.Second, Emulator: "127.0.0.1:1", StorageEmulator: appends.Address(),
	}, logging.Discard()))(t)
	t.Cleanup(func() { _ = archive.Close() })
	table := pgreadings.New(pool, archive, time.Now)
	sensors := sensorcache.New(s, coalesce.Wait{}, time.Now)
	from := origin.New(s, time.Now, origin.Options{})
	step := ingest.New(from, s, table, coalesce.Wait{}, time.Now, logging.Discard(), nil)
	judge := &judged{Store: incidents.New(s.DB)}
	detection := detect.New(from, sensors, noAlerts{}, judge, nil, alert.Defaults(), logging.Discard(), nil)

	customer, room := s.Owner(t, "customer1")
	now := reading.TruncateTime(time.Now())
	type offsets struct {
		from                  time.Time
		temperature, humidity float64
	}
	model := map[string][]offsets{} // ascending
	nodes := []string{"a", "b", "plain"}
	for _, node := range nodes {
		s.AddSensors(t, customer, room, node)
		if node == "plain" {
			continue
		}
		for i := range 3 {
			o := offsets{
				now.Add(time.Duration(i-3) * 20 * time.Minute).Add(time.Duration(chance.Int64N(int64(10 * time.Minute)))).Truncate(time.Microsecond),
				reading.Round(20*chance.Float64() - 10), reading.Round(60*chance.Float64() - 30),
			}
			model[node] = append(model[node], o)
			must.Get(pool.Exec(ctx, `
				INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at)
				VALUES ($1, $2, $3, $4, $5, 'Ana', $3::timestamptz - interval '1 day')`, customer, node, o.from, o.temperature, o.humidity))(t)
		}
		// One that was withdrawn corrects nothing.
		must.Get(pool.Exec(ctx, `
			INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at, withdrawn_by, withdrawn_at)
			VALUES ($1, $2, $3, 7, 7, 'Ana', $3::timestamptz - interval '1 day', 'Ana', $3::timestamptz - interval '1 hour')`,
			customer, node, now.Add(-30*time.Minute)))(t)
	}
	must.Get(pool.Exec(ctx, `UPDATE open_holds SET held_from = '-infinity'`))(t)

	// The model: written apart from the code, for one value.
	corrected := func(node string, at time.Time, temperature, humidity float64) (float64, float64, bool) {
		var in *offsets
		for i, o := range model[node] {
			if !at.Before(o.from) {
				in = &model[node][i]
			}
		}
		if in == nil {
			return temperature, humidity, false
		}
		hundredths := func(v float64) float64 { return math.Round(v*100) / 100 }
		return hundredths(temperature + in.temperature), math.Min(100, math.Max(0, hundredths(humidity+in.humidity))), true
	}
	var sent, want []reading.Reading
	var messages []push.Message
	for i := range 240 {
		node := nodes[chance.IntN(len(nodes))]
		r := reading.Reading{
			NodeID: node, MessageID: strconv.Itoa(i), Time: now.Add(-time.Duration(chance.Int64N(int64(70 * time.Minute)))).Truncate(time.Microsecond),
			Temperature: 165*chance.Float64() - 40, Humidity: 100 * chance.Float64(),
		}
		switch at := model[node]; {
		case len(at) > 0 && i%10 == 0: // at the very begin of one
			r.Time = at[chance.IntN(len(at))].from
		case len(at) > 0 && i%10 == 1:
			r.Time = at[chance.IntN(len(at))].from.Add(-time.Microsecond)
		}
		switch i % 7 {
		case 0:
			r.Humidity = reading.Missing()
		case 1:
			r.Temperature = reading.Missing()
		}
		sent = append(sent, r)
		w := reading.Window{Age: []float64{600, 5}, Temperature: []float64{21.37, 22.02}, Humidity: []float64{0.4, 99.6}}
		data := must.Get(wire.EncodeData(wire.Data{Reading: r, Recent: w}))(t)
		m := push.Message{ID: r.MessageID, Data: data, PublishTime: time.Now(), DeliveryAttempt: 2}
		messages = append(messages, m)
		if i%3 == 0 {
			messages = append(messages, m)
		}
		stored := r
		if t, h, ok := corrected(node, r.Time, r.Temperature, r.Humidity); ok {
			stored.Temperature, stored.Humidity = t, h
			stored = stored.WithUncorrected(reading.Pointer(r.Temperature), reading.Pointer(r.Humidity))
		}
		want = append(want, stored)
	}
	chance.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for i, m := range messages {
		first, second := step.Handle, detection.Handle
		if i%2 == 0 { // either may be the first to store the row
			first, second = second, first
		}
		must.Do(t, errors.Join(first(ctx, m), second(ctx, m)))
	}

	order := func(a, b reading.Reading) int { return cmp.Compare(a.MessageID, b.MessageID) }
	slices.SortFunc(want, order)
	slices.SortFunc(sent, order)
	var inPostgres []reading.Reading
	for r, err := range table.Ranges(ctx, []readings.NodeRef{refOf("a"), refOf("b"), refOf("plain")}, now.Add(-2*time.Hour), now.Add(time.Hour)) {
		must.Do(t, err)
		inPostgres = append(inPostgres, r)
	}
	inBigQuery := map[string]reading.Reading{}
	for _, r := range appends.Rows() {
		if before, ok := inBigQuery[r.MessageID]; ok && !before.Equal(r) {
			t.Errorf("copies differ: %+v and %+v", before, r)
		}
		inBigQuery[r.MessageID] = r
	}
	slices.SortFunc(inPostgres, order)
	must.Equal(t, "PostgreSQL", want, inPostgres)
	archived := slices.Collect(maps.Values(inBigQuery))
	slices.SortFunc(archived, order)
	must.Equal(t, "BigQuery", want, archived)
	for i, r := range inPostgres {
		must.Equal(t, "measured, and read back", sent[i], r.AsMeasured())
	}
	byID := map[string]reading.Reading{}
	for _, r := range want {
		byID[r.MessageID] = r
	}
	must.Equal(t, "judged", len(messages), len(judge.all))
	for _, j := range judge.all {
		must.Equal(t, "judged", byID[j.MessageID], j.Reading)
		for i, age := range j.Window.Age {
			raw := [...][2]float64{{21.37, 0.4}, {22.02, 99.6}}[i]
			wt, wh, _ := corrected(j.NodeID, j.Time.Add(-time.Duration(age)*time.Second), raw[0], raw[1])
			if j.Window.Temperature[i] != wt || j.Window.Humidity[i] != wh {
				t.Errorf("window of %s: %v, want %v and %v", j.MessageID, j.Window, wt, wh)
			}
		}
	}
}

func refOf(node string) readings.NodeRef {
	return readings.NodeRef{ID: node, Visible: []reading.Span{{}}}
}
