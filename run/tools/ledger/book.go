package ledger

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/shared/alert"
)

// Book keeps account of what live nodes send and of what they hear, reading by
// reading, until [Book.Settle] has found the reading stored as it must be; then
// only the sums of its node remain, so that a book can be kept for days.
type Book struct {
	clock  func() time.Time
	limits func(node string) alert.Thresholds

	mu    sync.Mutex
	nodes map[string]*page
}

// NewBook returns an empty book. limits are those of a node's owner; they must
// not change while its nodes send.
func NewBook(limits func(node string) alert.Thresholds, clock func() time.Time) *Book {
	return &Book{clock: clock, limits: limits, nodes: map[string]*page{}}
}

// page is one node's.
type page struct {
	open   map[string]*entry // by message id
	totals Totals
}

// entry is one reading, under one message id.
type entry struct {
	temperature, humidity float64
	attempts              []attempt
	pending               int // attempts without an end yet
}

// attempt is one request with the reading and how it ended.
type attempt struct {
	sent, ended time.Time
	status      int // 0 for no answer
}

// heard reports whether the gateway has taken the reading: 200 is said after
// Pub/Sub has it, 500 after the outbox does.
func (a attempt) heard() bool {
	return a.status == http.StatusOK || a.status == http.StatusInternalServerError
}

const messagePath = "/api/v1/message"

// Over returns a transport that writes down every reading that passes it on
// base.
func (b *Book) Over(base http.RoundTripper) http.RoundTripper { return recorder{b, base} }

type recorder struct {
	book *Book
	base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, messagePath) || request.GetBody == nil {
		return r.base.RoundTrip(request) //nolint:wrapcheck // stands for the transport itself
	}
	var sent struct {
		ID          string  `json:"id"`
		NodeID      string  `json:"node_id"`
		Temperature float64 `json:"temperature"`
		Humidity    float64 `json:"humidity"`
	}
	if body, err := request.GetBody(); err == nil {
		// What is no reading is the gateway's to refuse.
		_ = json.NewDecoder(io.LimitReader(body, 1<<16)).Decode(&sent)
	}
	began := r.book.clock()
	e := r.book.begin(sent.NodeID, sent.ID, sent.Temperature, sent.Humidity)
	response, err := r.base.RoundTrip(request)
	a := attempt{sent: began, ended: r.book.clock()}
	if err == nil {
		a.status = response.StatusCode
	}
	r.book.end(e, a)
	return response, err //nolint:wrapcheck // stands for the transport itself
}

// CloseIdleConnections lets [http.Client] close those of the transport below.
func (r recorder) CloseIdleConnections() {
	if base, ok := r.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (b *Book) begin(node, message string, temperature, humidity float64) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.nodes[node]
	if !ok {
		p = &page{open: map[string]*entry{}, totals: Totals{Node: node}}
		b.nodes[node] = p
	}
	e, ok := p.open[message]
	if !ok {
		e = &entry{temperature: temperature, humidity: humidity}
		p.open[message] = e
		p.totals.Sent++
	}
	e.pending++
	return e
}

func (b *Book) end(e *entry, a attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.pending--
	e.attempts = append(e.attempts, a)
}

// since and until are the first and the last moment of the entry.
func (e *entry) since() time.Time { return e.attempts[0].sent }

func (e *entry) until() time.Time {
	last := e.attempts[0].ended
	for _, a := range e.attempts {
		if a.ended.After(last) {
			last = a.ended
		}
	}
	return last
}

// Totals is what became of one node's readings, or of all nodes'.
type Totals struct {
	Node        string
	Sent        int // readings, each once however often it was sent
	Answered    int // readings that the gateway said it has
	Unanswered  int // readings whose node never heard anything; stored or not
	Stored      int // readings that are stored, of either
	Duplicated  int // further rows of a reading that was sent again because its gateway died before it answered
	Due         int // alerts that the stored rows call for
	Alerted     int // alerts of them that are stored
	Unexplained int // anything else; see [Book.Faults]
}

func (t *Totals) add(o Totals) {
	t.Sent += o.Sent
	t.Answered += o.Answered
	t.Unanswered += o.Unanswered
	t.Stored += o.Stored
	t.Duplicated += o.Duplicated
	t.Due += o.Due
	t.Alerted += o.Alerted
	t.Unexplained += o.Unexplained
}
