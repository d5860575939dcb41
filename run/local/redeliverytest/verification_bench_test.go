package redeliverytest

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// windowed is a message with a full window, as nodes' messages are.
func (c *channels) windowed(b *testing.B, g *gateway, r reading.Reading, published time.Time) push.Message {
	b.Helper()
	d := wire.Data{Reading: r}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(reading.MaxWindow-i)*30)
		d.Recent.Temperature = append(d.Recent.Temperature, 21.5)
		d.Recent.Humidity = append(d.Recent.Humidity, 41.2)
	}
	data, err := wire.EncodeData(d)
	if err != nil {
		b.Fatal(err)
	}
	m := push.Message{ID: r.MessageID, Data: data, PublishTime: published, Attributes: map[string]string{wire.NodeIDAttribute: r.NodeID}}
	if g != nil {
		maps.Copy(m.Attributes, wire.SignData(g.key, g.id, r.Time, wire.Age{Known: true}, data))
	}
	return m
}

// BenchmarkVerification gives the same readings to ingest and detect, over
// PostgreSQL, from an open gateway and from an enrolled one, in turns so that both
// meet the same machine. The ratio is what verification costs.
//
//	go test -run '^$' -bench Verification -benchtime 20000x ./run/local/redeliverytest
func BenchmarkVerification(b *testing.B) {
	c := newChannels(b)
	const round, callers = 500, 64
	var made atomic.Int64
	messages := func(g *gateway) []push.Message {
		all := make([]push.Message, round)
		for i := range all {
			now := reading.TruncateTime(time.Now())
			r := reading.Reading{
				NodeID: "node-" + strconv.Itoa(i%100), MessageID: strconv.FormatInt(made.Add(1), 10), Time: now, Temperature: 21.5, Humidity: 40,
			}
			all[i] = c.windowed(b, g, r, now)
		}
		return all
	}
	for name, handle := range map[string]push.HandleFunc{"ingest": c.ingest.Handle, "detect": c.detect.Handle} {
		b.Run(name, func(b *testing.B) {
			web := push.Handler(push.Config{Function: name, Clock: time.Now, Log: logging.Discard()}, handle)
			run := func(g *gateway) time.Duration {
				work := make(chan []byte, round)
				for _, m := range messages(g) {
					body, err := push.Encode(m)
					if err != nil {
						b.Fatal(err)
					}
					work <- body
				}
				close(work)
				began := time.Now()
				var group sync.WaitGroup
				for range callers {
					group.Go(func() {
						for body := range work {
							answer := httptest.NewRecorder()
							web.ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", bytes.NewReader(body)))
							if answer.Code != http.StatusNoContent {
								b.Errorf("answered %d", answer.Code)
							}
						}
					})
				}
				group.Wait()
				return time.Since(began)
			}
			run(nil) // caches and partitions
			run(&c.gateways[0])
			var open, signed time.Duration
			rounds := 0
			b.ResetTimer()
			for n := 0; n < b.N; n += round {
				open += run(nil)
				signed += run(&c.gateways[0])
				rounds++
			}
			b.ReportMetric(float64(open.Microseconds())/float64(rounds*round), "open-µs/op")
			b.ReportMetric(float64(signed.Microseconds())/float64(rounds*round), "signed-µs/op")
			b.ReportMetric(signed.Seconds()/open.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
