package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// BenchmarkBatch sends batches of 500 readings of as many nodes, all windows full, through a
// Pub/Sub in this process; readings/s is the rate. single and batch are HTTP and parsing
// alone, of the single door and of this one, per reading: of readings that the last rule
// refuses. ratio is batch to single, at most a third.
func BenchmarkBatch(b *testing.B) {
	const size = 500
	cloud, server := newPubSub(b)
	through := gateway.NewReadingPublisher(cloud, "data", 0)
	b.Cleanup(through.Stop)
	publisher := &sender{}
	config := gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "a", Networks: []string{"127.0.0.1"}}}}}
	site := gateway.New(config, publisher, openBox(b, b.TempDir(), time.Now), time.Now, logging.Discard())
	fill(b, size, publisher, site)
	publisher.Publisher = through
	url := "http://" + listen(b, site)
	post := func(path string, body []byte, want int) error {
		r := must.Get(http.NewRequestWithContext(b.Context(), http.MethodPost, url+path, bytes.NewReader(body)))(b)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode != want {
			return fmt.Errorf("answered %d, want %d", response.StatusCode, want)
		}
		return nil
	}
	batch := func(i int, of func(node, i int) []byte) []byte {
		var body bytes.Buffer
		for node := range size {
			body.Write(append(of(node, i), '\n'))
		}
		return body.Bytes()
	}
	tooWarm := func(node, i int) []byte {
		return bytes.Replace(measured(node, i), []byte(`"temperature":`), []byte(`"temperature":9`), 1)
	}
	warm, single := batch(0, tooWarm), dial(b, url[len("http://"):], 0) // net/http's client would take most of the time
	single.request = bytes.Replace(single.request, []byte(`"humidity":40.0`), []byte(`"humidity":4000`), 1)
	var whole, parsed, one span
	for i := 0; b.Loop(); i++ {
		body := batch(i, measured)
		whole.run(b, 1, 1, func(int, int) error { return post(readingsPath, body, http.StatusAccepted) })
		parsed.run(b, 1, 1, func(int, int) error { return post(readingsPath, warm, http.StatusAccepted) })
		one.run(b, 1, size, func(int, int) error { return single.refused() })
		server.ClearMessages()
	}
	b.ReportMetric(whole.perSecond()*size, "readings/s")
	b.ReportMetric(1e6/one.perSecond(), "single-µs")
	b.ReportMetric(1e6/parsed.perSecond()/size, "batch-µs")
	b.ReportMetric(one.perSecond()/parsed.perSecond()/size, "ratio")
}

// refused sends the request as it is and wants a 400.
func (c *caller) refused() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusBadRequest {
		return fmt.Errorf("answered %d: %w", response.StatusCode, err)
	}
	return nil
}
