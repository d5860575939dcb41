// Package ledger compares sent readings with the stores: a reading that a gateway
// accepted must be stored exactly once, with exactly the alerts that its values
// require. A [Ledger] records what nodes send, also while components are killed, and
// compares that with the stored rows.
package ledger

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/shared/alert"
)

// Ledger records the readings that live nodes send and the answers they get. A
// reading is kept until [Ledger.Settle] has found it stored as it must be; after that
// only the totals remain, so that a ledger can be kept for days.
type Ledger struct {
	Ahead time.Duration // by how much the gateway's clock may be ahead of the ledger's

	clock      func() time.Time
	thresholds func(node string) alert.Thresholds

	mu     sync.Mutex
	open   map[key]*sentReading
	totals Totals
}

// New returns an empty ledger. thresholds returns those of a node's owner; they must
// not change while the nodes send.
func New(thresholds func(node string) alert.Thresholds, clock func() time.Time) *Ledger {
	return &Ledger{clock: clock, thresholds: thresholds, open: map[key]*sentReading{}}
}

// key identifies a reading by node and message id.
type key struct{ node, message string }

// sentReading is one reading of a node, with one message id.
type sentReading struct {
	key

	temperature, humidity float64
	attempts              []attempt
	pending               int // attempts in flight
}

// attempt is one request with the reading and its result.
type attempt struct {
	sent, ended time.Time // sent: less the age that the node gave the reading
	status      int       // 0 for no answer
}

// accepted reports whether the gateway accepted the reading. It answers 200 after
// Pub/Sub has the reading, and 500 after the outbox has it.
func (a attempt) accepted() bool {
	return a.status == http.StatusOK || a.status == http.StatusInternalServerError
}

const messagePath = "/api/v1/message"

// Transport returns a transport that records every reading sent through base.
func (l *Ledger) Transport(base http.RoundTripper) http.RoundTripper {
	return recordingTransport{l, base}
}

type recordingTransport struct {
	ledger *Ledger
	base   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (r recordingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, messagePath) || request.GetBody == nil {
		return r.base.RoundTrip(request) //nolint:wrapcheck // stands for the transport itself
	}
	var sent struct {
		ID          string  `json:"id"`
		NodeID      string  `json:"node_id"`
		Temperature float64 `json:"temperature"`
		Humidity    float64 `json:"humidity"`
		Age         float64 `json:"age_s"`
	}
	if body, err := request.GetBody(); err == nil {
		// A body that is not a reading is left for the gateway to reject.
		_ = json.NewDecoder(io.LimitReader(body, 1<<16)).Decode(&sent)
	}
	began := r.ledger.clock().Add(-time.Duration(sent.Age * float64(time.Second))) // when it was measured
	e := r.ledger.begin(key{sent.NodeID, sent.ID}, sent.Temperature, sent.Humidity)
	response, err := r.base.RoundTrip(request)
	a := attempt{sent: began, ended: r.ledger.clock()}
	if err == nil {
		a.status = response.StatusCode
	}
	r.ledger.end(e, a)
	return response, err //nolint:wrapcheck // stands for the transport itself
}

// CloseIdleConnections closes the idle connections of the base transport; [http.Client]
// calls it.
func (r recordingTransport) CloseIdleConnections() {
	if base, ok := r.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (l *Ledger) begin(k key, temperature, humidity float64) *sentReading {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.open[k]
	if !ok {
		e = &sentReading{key: k, temperature: temperature, humidity: humidity}
		l.open[k] = e
		l.totals.Sent++
	}
	e.pending++
	return e
}

func (l *Ledger) end(e *sentReading, a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.pending--
	e.attempts = append(e.attempts, a)
}

// since and until are when the first attempt began and when the last one ended.
func (e *sentReading) since() time.Time { return e.attempts[0].sent }

func (e *sentReading) until() time.Time {
	return slices.MaxFunc(e.attempts, func(a, b attempt) int { return a.ended.Compare(b.ended) }).ended
}

// Totals counts readings by their result.
type Totals struct {
	Sent        int // readings, each once however often it was sent
	Answered    int // readings that the gateway accepted
	Unanswered  int // readings without any answer; stored or not
	Stored      int // readings that are stored, answered or not
	Duplicated  int // further rows of a reading that was sent again because its gateway was killed before it answered
	Alerted     int // alerts that the stored rows require, which are stored
	Unexplained int // readings that do not match; see [Ledger.Close]
}

func (t *Totals) add(o Totals) {
	t.Answered += o.Answered
	t.Unanswered += o.Unanswered
	t.Stored += o.Stored
	t.Duplicated += o.Duplicated
	t.Alerted += o.Alerted
}
