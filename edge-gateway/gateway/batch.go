package gateway

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"mime"
	"net/http"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
)

// Limits of a batch.
const (
	MaxBatchBody = 1 << 20 // bytes
	MaxBatch     = 1000    // readings
	// maxBacklog is how old a timestamp may be: what a sender's own buffer holds.
	maxBacklog = 7 * 24 * time.Hour
)

// What became of a reading of a batch, in its answer and in the counts of its source.
const (
	resultAccepted  = "accepted"
	resultDuplicate = "duplicate"
)

// fault is a rule that a reading of a batch breaks. Its reason is the word for the counts.
type fault struct {
	reason string
	error
}

var errTimes = errors.New("timestamp and age_s exclude each other")

// batchReading is a reading as a batch has it.
type batchReading struct {
	messageRequest

	Timestamp string `json:"timestamp"`

	name string // a suggestion for people
}

// reading returns the reading, without a time where it has no timestamp, and its age.
func (b *batchReading) reading(now time.Time) (r reading.Reading, age time.Duration, broken *fault) {
	b.ID = cmp.Or(b.ID, b.MessageID)
	given := func(n number) float64 {
		if n.given {
			return n.value
		}
		return reading.Missing()
	}
	r = reading.Reading{NodeID: b.NodeID, MessageID: b.ID, Temperature: given(b.Temperature), Humidity: given(b.Humidity)}
	check := func(reason string, errs ...error) {
		if err := cmp.Or(errs...); broken == nil && err != nil {
			broken = &fault{reason, err}
		}
	}
	check("malformed", drillProblem(b.Drill))
	check("id", nodeIDProblem(b.NodeID))
	if b.Timestamp == "" || b.ID != "" {
		check("id", missing(b.ID == "", "id"), reading.ValidateMessageID(b.ID))
	}
	check("value", b.Temperature.problem("temperature"), b.Humidity.problem("humidity"))
	check("time", b.Age.problem("age_s"), b.ageProblem())
	if b.Timestamp != "" {
		at, err := time.Parse(time.RFC3339Nano, b.Timestamp)
		r.Time = reading.TruncateTime(at)
		switch age = now.Sub(r.Time); {
		case err != nil:
			check("time", errors.New("timestamp must be a time as in RFC 3339"))
		case b.Age.given:
			check("time", errTimes)
		case age > maxBacklog, age < -reading.MaxAhead:
			check("time", fmt.Errorf("timestamp must be at most %g days old and %g minutes ahead: got %s",
				maxBacklog.Hours()/24, reading.MaxAhead.Minutes(), r.Time.Format(time.RFC3339))) //nolint:mnd // hours of a day
		}
	} else {
		age = b.age()
	}
	check("value", reading.ValidateValues(r.Temperature, r.Humidity))
	if broken == nil && r.MessageID == "" {
		r.MessageID = derivedID(r)
	}
	return r, age, broken
}

// derivedID is the message id of a reading that came without one: it is the same whenever the
// reading comes.
func derivedID(r reading.Reading) string {
	h := fnv.New64a()
	for _, bits := range []uint64{uint64(r.Time.UnixMicro()), math.Float64bits(r.Temperature + 0), math.Float64bits(r.Humidity + 0)} { //nolint:gosec // bits
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, bits))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// batchResult is the answer to one reading of a batch.
type batchResult struct {
	Status string `json:"status"` // accepted, duplicate or error
	Error  string `json:"error,omitzero"`
}

type batchResponse struct {
	Accepted   int   `json:"accepted"`
	Duplicates int   `json:"duplicates"`
	Errors     int   `json:"errors"`
	Ignored    int64 `json:"ignored,omitzero"` // metrics that are no climate
	// Results are in the order of the readings.
	Results []batchResult `json:"results"`
}

var errTooMany = fmt.Errorf("a batch has at most %d readings", MaxBatch)

// parseReadings reads {"readings": […]} or lines of JSON. A reading that is none has a fault.
func parseReadings(kind string, body []byte) (items []batchReading, faults []*fault, ignored int64, err error) {
	var in struct {
		Readings []json.RawMessage `json:"readings"`
	}
	first, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
	var probe struct {
		Readings json.RawMessage `json:"readings"`
	}
	switch {
	case strings.HasSuffix(kind, "/x-ndjson"), json.Unmarshal(first, &probe) == nil && probe.Readings == nil:
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				in.Readings = append(in.Readings, line)
			}
		}
	default:
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, nil, 0, malformed(err)
		}
	}
	switch {
	case len(in.Readings) == 0:
		return nil, nil, 0, errors.New("readings is required")
	case len(in.Readings) > MaxBatch:
		return nil, nil, 0, errTooMany
	}
	items, faults = make([]batchReading, len(in.Readings)), make([]*fault, len(in.Readings))
	for i, text := range in.Readings {
		if err := decode(text, &items[i]); err != nil {
			faults[i] = &fault{"malformed", err}
		}
	}
	return items, faults, 0, nil
}

// readings receives a batch of readings.
func (q *requests) readings(w http.ResponseWriter, r *http.Request) {
	q.batch(w, r, parseReadings)
}

// batch receives what a source sends; parse reads a body of a media type. 202 says that all that is valid is durable: Pub/Sub has it or
// the outbox. A sender that hears anything else sends the batch again, and what was durable by
// then is a duplicate.
func (q *requests) batch(
	w http.ResponseWriter, r *http.Request, parse func(kind string, body []byte) (items []batchReading, faults []*fault, ignored int64, err error),
) {
	from, leave, ok := q.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	body, ok := q.read(w, r, MaxBatchBody, detailBody)
	if !ok {
		from.refused(fmt.Sprintf("a batch broke off, or is over %d bytes", MaxBatchBody), q.clock())
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	items, faults, ignored, err := parse(kind, body)
	if err != nil {
		from.refused(err.Error(), q.clock())
		q.refuseBatch(w, r, err)
		return
	}
	answer, err := q.take(r, from, items, faults, ignored)
	if err != nil {
		q.unavailable(w, r, from, err)
		return
	}
	write(w, http.StatusAccepted, answer)
}

// refuseBatch answers a batch that cannot be read, which would be no better when sent again.
func (q *requests) refuseBatch(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errTooMany) {
		q.reject(w, r, "", http.StatusRequestEntityTooLarge, "too_large", err.Error(), err)
		return
	}
	q.reject(w, r, "", http.StatusBadRequest, "malformed", detailBody, err)
}

// take makes the readings of a batch durable that have no fault. The error is that the whole
// batch is to be sent again.
func (q *requests) take(r *http.Request, from *source, items []batchReading, faults []*fault, ignored int64) (batchResponse, error) {
	now := q.clock()
	clockProblem := q.monitor.clockProblem()
	measured, ages := make([]reading.Reading, len(items)), make([]time.Duration, len(items))
	for i := range items {
		if clockProblem != nil && items[i].Timestamp != "" {
			return batchResponse{}, clockProblem
		}
		if faults[i] == nil {
			measured[i], ages[i], faults[i] = items[i].reading(now)
		}
		if faults[i] == nil && !q.nodes.admit(items[i].NodeID, items[i].name, from.Name, remote(r), from.MaxNodes, now) {
			faults[i] = &fault{"limit", fmt.Errorf("node_id is one more than the %d nodes that the source may bring", from.MaxNodes)}
		}
	}
	answer := batchResponse{Results: make([]batchResult, len(items))}
	fresh := make([]timedReading, 0, len(items))
	data, places := make([][]byte, 0, len(items)), make([]int, 0, len(items))
	seen := make(map[reading.Identity]struct{}, len(items))
	for i := range items {
		if faults[i] != nil {
			continue
		}
		timed, encoded := q.prepare(measured[i], ages[i], remote(r))
		answer.Results[i].Status = resultAccepted
		if _, twice := seen[timed.Identity()]; twice || timed.kept || timed.sent {
			answer.Results[i].Status = resultDuplicate
			continue
		}
		seen[timed.Identity()] = struct{}{}
		fresh, data, places = append(fresh, timed), append(data, encoded), append(places, i)
	}
	for j, result := range q.sender.sendAll(r.Context(), fresh, data) {
		switch result {
		case lost:
			return batchResponse{}, errors.New("Pub/Sub does not take readings, and the outbox cannot keep them")
		case unpublishable:
			faults[places[j]] = &fault{"refused", errors.New("Pub/Sub refuses the reading")}
		case sent, kept:
		}
	}
	answer.Ignored = ignored
	q.conclude(from, &answer, faults)
	q.metrics.accepted.Add(float64(answer.Accepted))
	return answer, nil
}

// conclude writes faults into an answer and counts what became of its readings.
func (q *requests) conclude(from *source, answer *batchResponse, faults []*fault) {
	results, problem := map[string]int64{}, ""
	if answer.Ignored > 0 {
		results[resultIgnored] = answer.Ignored
	}
	for i, broken := range faults {
		result := &answer.Results[i]
		if broken != nil {
			problem, _, _ = strings.Cut(broken.Error(), "\n")
			*result = batchResult{Status: "error", Error: problem}
			results[broken.reason]++
			answer.Errors++
			continue
		}
		results[result.Status]++
	}
	answer.Accepted, answer.Duplicates = int(results[resultAccepted]), int(results[resultDuplicate])
	from.count(results, problem, q.clock())
}
