package redeliverytest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

// windowed is a push request with a full window, as nodes' messages are.
func (c *channels) windowed(b *testing.B, g *enrolledGateway, r reading.Reading) []byte {
	b.Helper()
	d := wire.Data{Reading: r}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(reading.MaxWindow-i)*30)
		d.Recent.Temperature = append(d.Recent.Temperature, 21.5+float64(i%7)/10)
		d.Recent.Humidity = append(d.Recent.Humidity, 41.2+float64(i%5)/10)
	}
	data := must.Get(wire.EncodeData(d))(b)
	m := push.Message{ID: r.MessageID, Data: data, PublishTime: r.Time, Attributes: map[string]string{wire.NodeIDAttribute: r.NodeID}}
	if g != nil {
		maps.Copy(m.Attributes, wire.SignData(g.key, g.id, r.Time, wire.Age{Known: true}, data))
	}
	body := must.Get(push.Encode(m))(b)
	return body
}

// pushAll posts requests as Pub/Sub does: over kept connections, as many at once as an
// instance serves.
func pushAll(b *testing.B, url string, bodies [][]byte) {
	b.Helper()
	const concurrency = 80
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}}
	defer client.CloseIdleConnections()
	work := make(chan []byte, len(bodies))
	for _, body := range bodies {
		work <- body
	}
	close(work)
	var group sync.WaitGroup
	for range concurrency {
		group.Go(func() {
			for body := range work {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				answer, err := client.Do(request)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusNoContent {
					b.Errorf("answered %s", answer.Status)
				}
			}
		})
	}
	group.Wait()
}

// processorTime is what processes have used so far, to 10 ms each.
func processorTime(b *testing.B, pids []int) time.Duration {
	b.Helper()
	var ticks int64
	for _, pid := range pids {
		content := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(b)
		// utime and stime are the 14th and 15th field, in 1/100 s; the second is the name in
		// parentheses. See proc_pid_stat(5).
		_, rest, _ := bytes.Cut(content, []byte(") "))
		for _, field := range bytes.Fields(rest)[11:13] {
			n := must.Get(strconv.ParseInt(string(field), 10, 64))(b)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkVerification starts ingest and detect as the buildpack does, over a real
// PostgreSQL and the AppendRows protocol, and pushes readings of registered sensors to
// both over HTTP, as many at a time as an instance takes: from an open gateway and from
// enrolled ones, in turns so that both meet the same machine. It counts the processor
// time of the functions and of PostgreSQL, not that of who pushes. The ratios are what
// verification costs: of each function's process, and of a message in all.
//
//	go test -run '^$' -bench Verification -benchtime 60000x ./run/local/redeliverytest
func BenchmarkVerification(b *testing.B) {
	c := newChannels(b)
	const nodes, sites, round = 100, 10, 1000
	for _, customer := range []int64{c.customers[2], c.customers[0]} {
		room := must.Get(c.store.CreateRoom(b.Context(), customer, "room"))(b)
		for i := range nodes {
			id := fmt.Sprintf("node-%d", i)
			must.Get(c.store.CreateSensor(b.Context(), customer, accounts.NewSensor{ID: id, Name: id, Type: "T", RoomID: room.ID}))(b)
		}
	}
	open, enrolled := make([]*enrolledGateway, sites), make([]*enrolledGateway, sites)
	for i := range enrolled {
		enrolled[i] = new(c.enrol(b, c.customers[0]))
	}
	pubsub := pubsubtest.Start(b)
	pubsubtest.Topics(b, pubsub, "test", "alerts", "data-dead-letter")
	table := bqtest.NewAppendServer(b)
	table.Discard = true
	environ := []string{
		"PROJECT_ID=test", "DEAD_LETTER_TOPIC=data-dead-letter", "PUBSUB_EMULATOR_HOST=" + pubsub.Addr, "DATABASE_URL=" + c.pool.Config().ConnString(),
		"BIGQUERY_EMULATOR_HOST=127.0.0.1:1", "BIGQUERY_STORAGE_EMULATOR_HOST=" + table.Address(),
	}
	names := []string{"ingest", "detect"}
	functions := map[string]*functiontest.Process{}
	program := functiontest.Build(b, "coldaisle.dev/functions/serve")
	for _, name := range names {
		functions[name] = functiontest.Start(b, program, append([]string{"FUNCTION_TARGET=" + name}, environ...)...)
	}
	made := 0
	messages := func(gateways []*enrolledGateway) [][]byte {
		bodies := make([][]byte, round)
		for i := range bodies {
			made++
			bodies[i] = c.windowed(b, gateways[i%sites], reading.Reading{
				NodeID: fmt.Sprintf("node-%d", i%nodes), MessageID: strconv.Itoa(made), Time: reading.TruncateTime(time.Now()),
				Temperature: 21.5, Humidity: 40,
			})
		}
		return bodies
	}
	for _, gateways := range [][]*enrolledGateway{open, enrolled} { // fills caches, opens connections
		for _, name := range names {
			pushAll(b, functions[name].URL, messages(gateways))
		}
	}
	var postgres []int
	must.Do(b, c.pool.QueryRow(b.Context(), `
		SELECT array_agg(pid)
		FROM pg_stat_activity
		WHERE datname = current_database() OR backend_type IN ('walwriter', 'checkpointer', 'background writer')`).Scan(&postgres))
	var used [2]map[string]time.Duration
	rounds := 0
	b.ResetTimer()
	for n := 0; n < b.N; n += 2 * round {
		for i, gateways := range [][]*enrolledGateway{open, enrolled} {
			if used[i] == nil {
				used[i] = map[string]time.Duration{}
			}
			bodies := messages(gateways)
			before := processorTime(b, postgres)
			for _, name := range names {
				began := processorTime(b, []int{functions[name].PID()})
				pushAll(b, functions[name].URL, bodies)
				used[i][name] += processorTime(b, []int{functions[name].PID()}) - began
			}
			used[i]["postgres"] += processorTime(b, postgres) - before
		}
		rounds++
	}
	var all [2]time.Duration
	for _, name := range append(names, "postgres") {
		for i, kind := range []string{"open", "signed"} {
			all[i] += used[i][name]
			b.ReportMetric(float64(used[i][name].Microseconds())/float64(rounds*round), name+"-"+kind+"-µs")
		}
		if name != "postgres" {
			b.ReportMetric(used[1][name].Seconds()/used[0][name].Seconds(), name+"-ratio")
		}
	}
	b.ReportMetric(all[1].Seconds()/all[0].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}
