package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// slowAnswer is a little longer than the gateway takes to answer while it waits for Pub/Sub.
	slowAnswer = 4500 * time.Millisecond
	// A node that sends nothing for minSilence, and for silentIntervals of its own, is silent.
	minSilence      = 30 * time.Second
	silentIntervals = 10
	// lookEvery is the time between two looks whether an examination is over.
	lookEvery = 50 * time.Millisecond
	// outageIntervals is how many intervals the gateway is gone.
	outageIntervals = 4
	// retryWithin is how many new readings may come before one that failed comes again.
	retryWithin = 3
	// maxRejected is how often a rejected reading may come.
	maxRejected = 3
	// ageTolerance is by how much a node may err about the age of a reading.
	ageTolerance = 3 * time.Second
	// requestsPerInterval allows for six readings while it gets hotter, a heartbeat, and some
	// that failed before; spareRequests come on top.
	requestsPerInterval, spareRequests = 12, 200
	gatewayBody                        = 128 << 10 // more than the gateway's own limit
)

// finding is one of an examination.
type finding struct{ severity, text string }

const (
	isRight = "ok"
	isWrong = "WRONG"
	isNote  = "note"
)

// treatment is how a request is answered: in place of the gateway, after a pause, or not
// at all.
type treatment struct {
	status int
	body   string
	pause  time.Duration
	hangUp bool // after the gateway had it, where taken
	taken  bool
}

// How new readings are answered: by the gateway itself, by one in trouble, and by pages of
// other machines that have its address now, such as a hotspot's login.
//
//nolint:gochecknoglobals // constants
var (
	byGateway  = treatment{}
	refused    = treatment{status: http.StatusInternalServerError, body: `{"error":"Failed to publish to Pub/Sub"}`}
	answerLost = treatment{hangUp: true, taken: true}
	kept       = treatment{status: http.StatusInternalServerError, body: `{"error":"Failed to publish to Pub/Sub","kept":true}`}
	rejected   = treatment{status: http.StatusBadRequest, body: `{"error":"Invalid message format","reason":"this is nodecheck: it rejects a reading that is in order"}`}
	limited    = treatment{status: http.StatusTooManyRequests, body: `{"error":"Too many requests"}`}
	timedOut   = treatment{status: http.StatusRequestTimeout, body: `{"error":"Request too slow"}`}
	login      = treatment{status: http.StatusOK, body: page}
	proxy      = treatment{status: http.StatusServiceUnavailable, body: page}
	unknown    = treatment{status: http.StatusNotFound, body: page}
	redirected = treatment{status: http.StatusFound, body: page}
	slow       = treatment{pause: slowAnswer}
	away       = treatment{hangUp: true}

	// script has them in their order; the gateway answers what comes later.
	script = []treatment{
		byGateway, byGateway, refused, byGateway, answerLost, byGateway, kept, byGateway, rejected, byGateway, limited, byGateway,
		timedOut, byGateway, login, byGateway, proxy, byGateway, unknown, byGateway, redirected, slow, away, byGateway, byGateway,
	}
)

const page = "<!DOCTYPE html><title>Sign in</title>"

// sample is a reading as it came first.
type sample struct {
	temperature, humidity string
	answered              treatment
	number                int // among the new readings
	measured              time.Time
	times                 int
	at                    time.Time
}

// examination is an http.Handler between a node and the gateway's own code.
type examination struct {
	gateway  http.Handler
	interval time.Duration
	clock    func() time.Time

	mu       sync.Mutex
	node     string
	host     string    // of its first request
	began    time.Time // the first request
	last     time.Time
	requests int
	found    []finding
	reported map[string]bool

	registrations int
	registered    bool
	beats         int
	readings      map[string]*sample
	step          int       // of the script
	finished      bool      // the script
	samples       int       // with ids of their own
	gone          time.Time // when the gateway went away
	duringOutage  map[string]bool
	caughtUp      int // readings of the outage that came with their age
	undated       int // and without
}

func newExamination(behind http.Handler, interval time.Duration, clock func() time.Time) *examination {
	return &examination{
		gateway: behind, interval: interval, clock: clock,
		reported: map[string]bool{}, readings: map[string]*sample{}, duringOutage: map[string]bool{},
	}
}

// report adds a finding, one of each kind.
func (e *examination) report(severity, kind, format string, values ...any) {
	if !e.reported[kind] {
		e.reported[kind] = true
		e.found = append(e.found, finding{severity, fmt.Sprintf(format, values...)})
	}
}

// lockedReport reports what is wrong, without the lock held.
func (e *examination) lockedReport(kind, format string, values ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report(isWrong, kind, format, values...)
}

// message is what a node sends; numbers stay as they were written.
type message struct {
	ID          string          `json:"id"`
	MessageID   string          `json:"message_id"`
	NodeID      string          `json:"node_id"`
	Temperature json.RawMessage `json:"temperature"`
	Humidity    json.RawMessage `json:"humidity"`
	Age         json.RawMessage `json:"age_s"`
}

// ServeHTTP implements [http.Handler].
func (e *examination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, gatewayBody))
	if err != nil {
		e.lockedReport("body", "a request to %s was cut off: Content-Length must be the length of the body in bytes", r.URL.Path)
		return
	}
	var m message
	_ = json.Unmarshal(body, &m) // the gateway says what is wrong with it
	if r.URL.Path == "/login" {
		_, _ = io.WriteString(w, page)
		return
	}
	what := e.decide(r, m)
	if what.pause > 0 {
		select {
		case <-time.After(what.pause):
		case <-r.Context().Done():
			e.lockedReport("timeout", "did not wait %s for an answer: the gateway may take 4 s while it waits for Pub/Sub, so a node waits at least 5", what.pause)
			return
		}
	}
	if what.status > 0 {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case what.body == page:
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Location", "/login") // where it is 302
		case what.status == http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(what.status)
		_, _ = io.WriteString(w, what.body)
		return
	}
	if what.hangUp && !what.taken {
		panic(http.ErrAbortHandler)
	}
	recorder := httptest.NewRecorder()
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.gateway.ServeHTTP(recorder, r)
	e.checkAnswer(r, recorder, body)
	if what.hangUp {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes())
}

// decide records a request and decides how it is answered.
func (e *examination) decide(r *http.Request, m message) treatment {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock()
	if e.began.IsZero() {
		e.began = now
	}
	e.last = now
	e.requests++
	if e.node == "" {
		e.node = m.NodeID
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	e.host = cmp.Or(e.host, host)
	if host != e.host && m.NodeID == e.node {
		e.report(isNote, "two", "%s calls from %s and from %s: unless the network gave the board another address, two boards have one node_id, "+
			"and Coldaisle takes them for one sensor", e.node, e.host, host)
	}
	if m.NodeID != e.node && m.NodeID != "" {
		e.report(isNote, "other "+m.NodeID, "a node %s calls too: it is not examined, unless it is the same one under another id, which is wrong", m.NodeID)
		return treatment{}
	}
	if !e.gone.IsZero() && now.Sub(e.gone) < outageIntervals*e.interval {
		if r.URL.Path == "/api/v1/message" && m.id() != "" {
			e.duringOutage[m.id()] = true
			e.record(m, now)
		}
		return treatment{hangUp: true}
	}
	switch r.URL.Path {
	case "/api/v1/register":
		e.registrations++
		if e.registrations <= 2 && len(e.readings) == 0 {
			return treatment{hangUp: true}
		}
		e.registered = true
	case "/api/v1/heartbeat":
		e.beats++
	case "/api/v1/message":
		return e.message(m, now)
	}
	return treatment{}
}

func (m message) id() string { return cmp.Or(m.ID, m.MessageID) }

// age is what the message says of it, 0 where the gateway will reject what it says.
func (m message) age() time.Duration {
	seconds, err := strconv.ParseFloat(strings.Trim(string(m.Age), `"`), 64)
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// record keeps a reading and reports whether it is new.
func (e *examination) record(m message, now time.Time) (r *sample, isNew bool) {
	temperature, humidity := strings.Trim(string(m.Temperature), `"`), strings.Trim(string(m.Humidity), `"`)
	r, ok := e.readings[m.id()]
	if ok && (r.temperature != temperature || r.humidity != humidity) {
		ok = false // it is examined as the new one that it is
		e.report(isWrong, "id", "message id %q came with %s °C and %s %%, and before with %s °C and %s %%: every reading needs an id of its own, such as eight random bytes",
			m.id(), temperature, humidity, r.temperature, r.humidity)
	}
	if !ok {
		e.samples++
		r = &sample{temperature: temperature, humidity: humidity, number: e.samples, at: now, measured: now.Add(-m.age())}
		e.readings[m.id()] = r
	}
	r.times++
	if off := now.Add(-m.age()).Sub(r.measured); ok && len(m.Age) > 0 && off.Abs() > ageTolerance {
		e.report(isWrong, "age", "message id %q came with an age_s of %s, %s after it came first with an age of %s: age_s is the seconds from the measurement to this request",
			m.id(), m.Age, now.Sub(r.at).Round(time.Millisecond), r.at.Sub(r.measured).Round(time.Millisecond))
	}
	return r, !ok
}

// message decides by the script.
func (e *examination) message(m message, now time.Time) treatment {
	if len(e.readings) == 0 && !e.registered {
		if e.registrations == 0 {
			e.report(isWrong, "register", "sent a reading without having called /api/v1/register: a node registers at boot")
		} else {
			e.report(isWrong, "register", "gave up registration after %d attempts without an answer: a node makes five retries, with growing pauses", e.registrations)
		}
	}
	if m.id() == "" || !json.Valid(m.Temperature) || !json.Valid(m.Humidity) {
		return treatment{} // the gateway rejects it
	}
	r, isNew := e.record(m, now)
	if !isNew {
		return e.repeated(m, r, now)
	}
	if e.step < len(script) {
		r.answered = script[e.step]
		e.step++
	}
	if r.answered == away {
		e.gone = now
		e.duringOutage[m.id()] = true
	}
	return r.answered
}

// repeated decides on a message that came before.
func (e *examination) repeated(m message, r *sample, now time.Time) treatment {
	if e.duringOutage[m.id()] {
		delete(e.duringOutage, m.id())
		if len(m.Age) > 0 {
			e.caughtUp++
		} else {
			e.undated++
		}
	}
	switch r.answered {
	case kept:
		e.report(isNote, "kept", `sent a reading again that was answered 500 with "kept": true: it need not, the gateway has it`)
	case limited:
		if r.times == 2 && now.Sub(r.at) < 900*time.Millisecond && e.interval > 2*time.Second {
			e.report(isWrong, "limited", "sent again %s after an answer of 429 with Retry-After: 1", now.Sub(r.at).Round(time.Millisecond))
		}
	case rejected:
		if r.times > maxRejected {
			e.report(isWrong, "rejected", "sent a reading %d times that was answered 400: it will be rejected for ever, so drop it and go on", r.times)
		}
		return rejected
	}
	return treatment{}
}

// checkAnswer looks at the gateway's own answer.
func (e *examination) checkAnswer(r *http.Request, answer *httptest.ResponseRecorder, body []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var said struct{ Error, Reason string }
	_ = json.Unmarshal(answer.Body.Bytes(), &said)
	switch {
	case answer.Code < 400:
		e.finished = e.finished || e.step == len(script) && r.URL.Path == "/api/v1/message"
	case answer.Code == http.StatusNotFound, answer.Code == http.StatusMethodNotAllowed:
		e.report(isWrong, "path "+r.URL.Path, "called %s %s, which the gateway does not have (%d %s)", r.Method, r.URL.Path, answer.Code, said.Error)
	case said.Reason != "" && r.URL.Path == "/api/v1/message":
		rule, _, _ := strings.Cut(said.Reason, ": got")
		e.report(isWrong, "invalid "+rule, "sent a message that the gateway rejects: %s. The body was %.200s", said.Reason, body)
	default:
		e.report(isWrong, "invalid "+r.URL.Path, "%s was answered %d %s. The body was %.200s",
			r.URL.Path, answer.Code, cmp.Or(said.Reason, said.Error), body)
	}
}

// over reports whether the script is finished, or the node has fallen silent.
func (e *examination) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished || e.began.IsZero() {
		return e.finished
	}
	now := e.clock()
	if silence := now.Sub(e.last); silence > max(minSilence, silentIntervals*e.interval) {
		e.report(isWrong, "silent", "fell silent: nothing came for %s, after %d requests. Nodes go on whatever they are answered, or not answered", silence.Round(time.Second), e.requests)
		return true
	}
	// A node that comes, and never with what the script waits for.
	if stuck := now.Sub(e.began); stuck > max(4*minSilence, 20*silentIntervals*e.interval) {
		e.report(isWrong, "stuck", "sent %d readings with ids of their own in %s, too few to examine it", e.samples, stuck.Round(time.Second))
		return true
	}
	return false
}

// findings returns what was found; where nothing is wrong, a summary comes first.
func (e *examination) findings() []finding {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.began.IsZero() {
		return []finding{{isWrong, "no node called"}}
	}
	elapsed := e.last.Sub(e.began)
	var answered, pages []string // statuses, of readings that never came again
	for id, r := range e.readings {
		behind := e.samples - r.number
		if r.times > 1 || behind < retryWithin {
			continue
		}
		switch status := strconv.Itoa(r.answered.status); {
		case r.answered == answerLost:
			e.report(isWrong, "lost answer", "reading %q got no answer and never came again under its id: a node that hears nothing cannot know, and sends the same message again", id)
		case r.answered.body == page:
			pages = append(pages, status)
		case r.answered == refused, r.answered == limited, r.answered == timedOut:
			answered = append(answered, status)
		}
	}
	slices.Sort(answered)
	slices.Sort(pages)
	if len(answered) > 0 {
		e.report(isWrong, "answered", "never sent a reading again under its id that was answered %s: it is lost, or stored twice if it came under another", strings.Join(answered, ", "))
	}
	if len(pages) > 0 {
		e.report(isWrong, "pages", "never sent a reading again under its id that was answered %s with a web page: only JSON with its message_id is the gateway's answer, another machine has the address, so ask for the name again",
			strings.Join(pages, ", "))
	}
	if e.beats == 0 && e.samples > 3*retryWithin {
		e.report(isWrong, "heartbeat", "sent %d readings and no heartbeat: POST /api/v1/heartbeat with {\"node_id\": …} between readings, each 30 to 60 seconds", e.samples)
	}
	if most := requestsPerInterval*int(elapsed/e.interval) + spareRequests; e.requests > most {
		e.report(isWrong, "busy", "made %d requests in %d intervals of %s: the gateway answers 429 beyond 50 a second, and a battery is soon empty", e.requests, elapsed/e.interval, e.interval)
	}
	if e.undated > 0 {
		e.report(isNote, "undated", "readings that waited for the gateway came without age_s: they are dated when they arrive")
	} else if !e.gone.IsZero() && e.caughtUp == 0 {
		e.report(isNote, "outage", "what was measured while the gateway was away never came: a node may keep an hour of readings, and send them with age_s")
	}
	if slices.ContainsFunc(e.found, func(f finding) bool { return f.severity == isWrong }) {
		return e.found
	}
	return append([]finding{{isRight, fmt.Sprintf("%s: %d registrations, %d readings, %d heartbeats, %d readings of an outage with their age",
		e.node, e.registrations, e.samples, e.beats, e.caughtUp)}}, e.found...)
}
