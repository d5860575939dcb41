package gateway_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/wire"
)

// caller is one connection of a node: one request written out beforehand, in which only the figures change, and answers
// read as far as needed. net/http's client would take most of the time.
type caller struct {
	conn            net.Conn
	answers         *bufio.Reader
	request         []byte
	id, temperature []byte // their places in the request
}

func dial(tb testing.TB, address string, node int) *caller {
	tb.Helper()
	conn := must.Get((&net.Dialer{}).DialContext(tb.Context(), "tcp", address))(tb)
	tb.Cleanup(func() { _ = conn.Close() })
	body := measured(node, 0)
	c := &caller{conn: conn, answers: bufio.NewReader(conn)}
	c.request = fmt.Appendf(nil, "POST /api/v1/message HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	field := func(name string, length int) []byte {
		_, value, _ := bytes.Cut(c.request, []byte(name))
		return value[:length]
	}
	c.id, c.temperature = field(`"id":"`, 8), field(`"temperature":`, 4)
	return c
}

// post sends reading i of the node.
func (c *caller) post(i int) (status int, err error) {
	hex.Encode(c.id, binary.BigEndian.AppendUint32(nil, uint32(i)))
	c.temperature[1], c.temperature[3] = byte('0'+i/10%10), byte('0'+i%10)
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	line, err := c.answers.ReadSlice('\n')
	if err == nil {
		status, err = strconv.Atoi(string(line[9:12]))
	}
	for err == nil && line[0] != '{' { // the body is one line
		line, err = c.answers.ReadSlice('\n')
	}
	return status, err
}

// posts sends reading i of the node and wants an answer of a status.
func (c *caller) posts(i, want int) error {
	status, err := c.post(i)
	if err == nil && status != want {
		err = fmt.Errorf("answered %d, want %d", status, want)
	}
	return err
}

// dialAll opens a connection for each of so many nodes.
func dialAll(tb testing.TB, address string, nodes int) []*caller {
	tb.Helper()
	callers := make([]*caller, nodes)
	for i := range callers {
		callers[i] = dial(tb, address, i)
	}
	return callers
}

// listen serves a handler as the gateway does and returns its address.
func listen(tb testing.TB, handler http.Handler) string {
	tb.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0"))(tb)
	background(tb, func(ctx context.Context) error { return gateway.Serve(ctx, listener, handler, logging.Discard()) })
	return listener.Addr().String()
}

// newTopic returns a topic of a Pub/Sub in this process.
func newTopic(tb testing.TB, options ...pstest.ServerReactorOption) (*gateway.ReadingPublisher, *pstest.Server) {
	tb.Helper()
	client, server := newPubSub(tb, options...)
	topic := gateway.NewReadingPublisher(client, "data", 0)
	tb.Cleanup(topic.Stop)
	return topic, server
}

func newPubSub(tb testing.TB, options ...pstest.ServerReactorOption) (*pubsub.Client, *pstest.Server) {
	tb.Helper()
	server := pubsubtest.Start(tb, options...)
	pubsubtest.Topics(tb, server, "site", "data")
	return pubsubtest.Client(tb, server, "site"), server
}

// echo answers like the gateway, and does nothing else.
func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"status":"published","message_id":"0123456789abcdef"}`+"\n")
}

// span is what a number of calls took.
type span struct {
	every time.Duration // from the start of one call to the next; 0 for as fast as they are answered
	calls int
	total time.Duration
	each  []time.Duration
}

func (s *span) run(b *testing.B, workers, n int, call func(worker, i int) error) {
	b.Helper()
	var next atomic.Int64
	took := make([][]time.Duration, workers)
	var working sync.WaitGroup
	began := time.Now()
	for w := range workers {
		working.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				time.Sleep(time.Until(began.Add(time.Duration(i) * s.every)))
				start := time.Now()
				if err := call(w, i); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(start))
			}
		})
	}
	working.Wait()
	s.total += time.Since(began)
	s.calls += n
	s.each = append(s.each, slices.Concat(took...)...)
}

func (s *span) perSecond() float64 { return float64(s.calls) / s.total.Seconds() }

func (s *span) at(share float64) time.Duration {
	slices.Sort(s.each)
	return s.each[min(len(s.each)-1, int(share*float64(len(s.each))))]
}

// fill gives every node of a gateway a full window and returns a message as it is published then.
func fill(tb testing.TB, nodes int, publisher *sender, handler http.Handler) []byte {
	tb.Helper()
	var newest gateway.Message
	publisher.Publisher = gateway.PublishFunc(func(_ context.Context, m gateway.Message) error { newest = m; return nil })
	for n := range nodes {
		for i := range 121 {
			r := must.Get(http.NewRequestWithContext(tb.Context(), http.MethodPost, "/api/v1/message", bytes.NewReader(measured(n, i-1000))))(tb)
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	return newest.Data
}

func measured(node, i int) []byte {
	return fmt.Appendf(nil, `{"id":"%08x","node_id":"node-%04d","temperature":%.1f,"humidity":%.1f}`,
		uint32(i), node, 20+float64(i%97)/10, 40+float64(i%89)/10)
}

// sender publishes to a place that can be changed.
type sender struct {
	gateway.Publisher
}

// BenchmarkGateway sends readings over HTTP by as many connections as nodes, all windows full, beside what it is made
// of, turn by turn: the same messages through the Pub/Sub client alone, which gathers for a millisecond, and the same
// requests to a handler that only answers. ratio is the gateway's rate to the lower of the two; of-both is its rate to
// that of one after the other, the limit where the processor is what is short. All of them, the callers and Pub/Sub
// share the machine.
func BenchmarkGateway(b *testing.B) {
	for _, connections := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			cloud, server := newPubSub(b)
			through := gateway.NewReadingPublisher(cloud, "data", 0)
			b.Cleanup(through.Stop)
			alone := publisher.New(cloud, "data", gateway.PublishTimeout)
			b.Cleanup(alone.Stop)
			publisher := &sender{}
			site := gateway.New(gateway.Config{}, publisher, openBox(b, b.TempDir(), time.Now), time.Now, logging.Discard())
			message := fill(b, connections, publisher, site)
			attributes := map[string]string{wire.NodeIDAttribute: "node-0000"}
			publisher.Publisher = through
			address, echoAddress := listen(b, site), listen(b, http.HandlerFunc(echo))
			callers, echoes := dialAll(b, address, connections), dialAll(b, echoAddress, connections)
			sent := 0
			turn := func(whole, client, answer *span, n int) {
				whole.run(b, connections, n, func(w, i int) error { return callers[w].posts(sent+i, http.StatusOK) })
				sent += n
				client.run(b, connections, n, func(int, int) error { return alone.Publish(b.Context(), message, attributes) })
				answer.run(b, connections, n, func(w, i int) error { return echoes[w].posts(i, http.StatusOK) })
				server.ClearMessages()
			}
			turn(&span{}, &span{}, &span{}, 4*connections) // to open connections and grow the heap
			var whole, client, answer span
			for b.Loop() {
				turn(&whole, &client, &answer, max(16*connections, 256))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(whole.perSecond(), "messages/s")
			b.ReportMetric(float64(whole.at(0.5).Microseconds()), "p50-µs")
			b.ReportMetric(float64(whole.at(0.99).Microseconds()), "p99-µs")
			b.ReportMetric(client.perSecond(), "client/s")
			b.ReportMetric(float64(client.at(0.5).Microseconds()), "client-p50-µs")
			b.ReportMetric(answer.perSecond(), "echo/s")
			b.ReportMetric(whole.perSecond()/min(client.perSecond(), answer.perSecond()), "ratio")
			b.ReportMetric(whole.perSecond()*(1/client.perSecond()+1/answer.perSecond()), "of-both")
		})
	}
}

// BenchmarkAway sends new readings while Pub/Sub is known to be away: each is on disk before its answer. At 1,000 a
// second, thirty times what 1,000 nodes send, the figures are what a node sees; without a rate they are the gateway's
// limit. sync-µs is what one write and sync of as many bytes costs on the same disk.
func BenchmarkAway(b *testing.B) {
	for _, c := range []struct{ connections, rate int }{{1, 0}, {32, 0}, {256, 0}, {256, 1000}} {
		name := fmt.Sprintf("connections=%d", c.connections)
		answers := span{}
		if c.rate > 0 {
			name += fmt.Sprintf("/rate=%d", c.rate)
			answers.every = time.Second / time.Duration(c.rate)
		}
		connections := c.connections
		b.Run(name, func(b *testing.B) {
			publisher := &sender{}
			box := must.Get(outbox.Open(b.TempDir(), outbox.Options{Clock: time.Now, MaxBytes: 8 << 30}))(b)
			b.Cleanup(func() { _ = box.Close() })
			site := gateway.New(gateway.Config{}, publisher, box, time.Now, logging.Discard())
			message := fill(b, connections, publisher, site)
			away := &record{}
			away.fail(errAway)
			publisher.Publisher = away
			address := listen(b, site)
			callers := dialAll(b, address, connections)
			bare := must.Get(os.Create(filepath.Join(b.TempDir(), "bare")))(b)
			b.Cleanup(func() { _ = bare.Close() })
			var syncs span
			sent := 0
			for b.Loop() {
				n := max(4*connections, 64, c.rate)
				answers.run(b, connections, n, func(w, i int) error { return callers[w].posts(sent+i, http.StatusInternalServerError) })
				sent += n
				syncs.run(b, 1, 16, func(int, int) error {
					_, err := bare.Write(message)
					return errors.Join(err, bare.Sync())
				})
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(answers.perSecond(), "answers/s")
			b.ReportMetric(float64(answers.at(0.5).Microseconds()), "p50-µs")
			b.ReportMetric(float64(answers.at(0.99).Microseconds()), "p99-µs")
			b.ReportMetric(float64(syncs.at(0.5).Microseconds()), "sync-p50-µs")
			b.ReportMetric(float64(syncs.at(0.99).Microseconds()), "sync-p99-µs")
		})
	}
}

// backlogSize is how many readings BenchmarkBacklog drains; GATEWAY_BACKLOG=1000000 says otherwise.
func backlogSize(b *testing.B) int {
	b.Helper()
	return must.Get(strconv.Atoi(cmp.Or(os.Getenv("GATEWAY_BACKLOG"), "50000")))(b)
}

// ordered is a Pub/Sub that notes the order in which a node's backlog is taken.
type ordered struct {
	gateway.Publisher

	mu                  sync.Mutex
	last                map[string]time.Time
	delivered, disorder int
}

func (o *ordered) Publish(ctx context.Context, live bool, messages ...gateway.Message) []error {
	errs := o.Publisher.Publish(ctx, live, messages...)
	if live {
		return errs
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, m := range messages {
		r, _, err := wire.DecodeReading(m.Data, func(stamped time.Time) (time.Time, error) { return stamped, nil })
		if err != nil || errs[i] != nil {
			continue
		}
		if r.Time.Before(o.last[m.NodeID]) {
			o.disorder++
		}
		o.last[m.NodeID] = r.Time
		o.delivered++
	}
	return errs
}

// BenchmarkBacklog drains a backlog of 1,000 nodes beside 32 nodes that send 200 readings a second. Two seconds without
// the drain and two with it take turns. The ratio is of the 99th percentiles of two turns that follow one another, and
// what counts is the median of these ratios: two turns meet the same machine, and what somebody else does to it in one
// of them moves one ratio, where it would move the 99th percentile of all. On a machine that others fill, either turn
// mostly waits for a processor, and longer the more the process computes: make backlog has it go first there (chrt
// --fifo).
func BenchmarkBacklog(b *testing.B) {
	const nodes, live, every = 1000, 32, 5 * time.Millisecond
	size := backlogSize(b)
	through, server := newTopic(b)
	for b.Loop() {
		box := openBox(b, b.TempDir(), time.Now)
		start := time.Now().Add(-time.Duration(size/nodes+1) * 30 * time.Second)
		var filling sync.WaitGroup
		for w := range 250 {
			filling.Go(func() { // each writes its own nodes, in their order
				for i := range size / nodes {
					for node := w; node < nodes; node += 250 {
						r := keptRecord(fmt.Sprintf("kept-%04d", node), strconv.Itoa(i))
						r.Reading.Time = start.Add(time.Duration(i) * 30 * time.Second).Truncate(time.Microsecond)
						if err := box.AppendAll([]outbox.Record{r})[0]; err != nil {
							b.Error(err)
							return
						}
					}
				}
			})
		}
		filling.Wait()
		watched := &ordered{Publisher: through, last: map[string]time.Time{}}
		site := gateway.New(gateway.Config{}, watched, box, time.Now, logging.Discard())
		address := listen(b, site)
		callers := dialAll(b, address, live)
		sent := 0
		send := func(s *span) {
			s.run(b, live, 400, func(w, i int) error { return callers[w].posts(sent+i, http.StatusOK) })
			sent += 400
			server.ClearMessages()
		}
		send(&span{every: every})
		var ratios []float64
		var alone, beside []time.Duration // 99th percentiles
		var took time.Duration
		for box.Stats().Pending > 0 {
			without, with := span{every: every}, span{every: every}
			send(&without)
			began := time.Now()
			stop := background(b, site.Run)
			send(&with)
			stop()
			took += time.Since(began)
			alone, beside = append(alone, without.at(0.99)), append(beside, with.at(0.99))
			ratios = append(ratios, float64(with.at(0.99))/float64(without.at(0.99)))
		}
		must.Hold(b, watched.delivered == size/nodes*nodes && watched.disorder == 0,
			"%d of %d readings of the backlog, %d out of order", watched.delivered, size, watched.disorder)
		slices.Sort(ratios)
		slices.Sort(alone)
		slices.Sort(beside)
		middle := len(ratios) / 2
		if ratios[middle] > 2 {
			b.Errorf("the 99th percentile of live readings rises to %.2f of that without a drain, in the median of %d pairs of turns", ratios[middle], len(ratios))
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(size)/took.Seconds(), "backlog/s")
		b.ReportMetric(float64(alone[middle].Microseconds()), "alone-p99-µs")
		b.ReportMetric(float64(beside[middle].Microseconds()), "p99-µs")
		b.ReportMetric(ratios[middle], "p99-ratio")
		b.ReportMetric(ratios[len(ratios)/4], "lower-quarter")
		b.ReportMetric(ratios[len(ratios)*3/4], "upper-quarter")
		b.ReportMetric(float64(len(ratios)), "pairs")
	}
}
