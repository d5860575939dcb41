package gateway

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
)

// Limits of a batch.
const (
	MaxBatchBody = 1 << 20 // bytes
	MaxBatch     = 1000    // readings
	// maxBacklog is how old a timestamp may be: as old as a sender's own buffer.
	maxBacklog = 7 * 24 * time.Hour
)

// The results of a batch's readings, in the answer and in the counts of the source.
const (
	resultAccepted  = "accepted"
	resultDuplicate = "duplicate"
)

// violation is a rule that a reading of a batch breaks. It is counted under its reason.
type violation struct {
	reason string
	error
}

type batchReading struct {
	messageRequest

	Timestamp string `json:"timestamp"`

	name   string            // a suggestion for people
	tags   map[string]string // of the metric that it comes from
	broken *violation        // nil for a valid one
}

// batch is a request of a source.
type batch struct {
	items   []batchReading
	ignored int64 // metrics that do not measure the climate
}

// refuse records the first rule that a reading breaks.
func (b *batchReading) refuse(reason string, err error) {
	if b.broken == nil && err != nil {
		b.broken = &violation{reason, err}
	}
}

// reading returns the reading and its age. Without a timestamp the reading has no time.
func (b *batchReading) reading(now time.Time) (r reading.Reading, age time.Duration) {
	b.ID = cmp.Or(b.ID, b.MessageID)
	r = reading.Reading{NodeID: b.NodeID, MessageID: b.ID, Temperature: b.Temperature.orMissing(), Humidity: b.Humidity.orMissing()}
	b.refuse("malformed", validateDrill(b.Drill))
	b.refuse("id", validateNodeID(b.NodeID))
	if b.Timestamp == "" || b.ID != "" {
		b.refuse("id", cmp.Or(missing(b.ID, "id"), reading.ValidateMessageID(b.ID)))
	}
	b.refuse("value", cmp.Or(b.Temperature.optional("temperature"), b.Humidity.optional("humidity")))
	b.refuse("time", cmp.Or(b.Age.optional("age_s"), b.validateAge()))
	if b.Timestamp != "" {
		at, err := time.Parse(time.RFC3339Nano, b.Timestamp)
		r.Time = reading.TruncateTime(at)
		switch age = now.Sub(r.Time); {
		case err != nil:
			b.refuse("time", errors.New("timestamp must be a time as in RFC 3339"))
		case b.Age.given:
			b.refuse("time", errors.New("timestamp and age_s exclude each other"))
		case age > maxBacklog, age < -reading.MaxAhead:
			b.refuse("time", fmt.Errorf("timestamp must be at most %g days old and %g minutes ahead: got %s",
				maxBacklog.Hours()/24, reading.MaxAhead.Minutes(), r.Time.Format(time.RFC3339))) //nolint:mnd // hours of a day
		}
	} else {
		age = b.age()
	}
	b.refuse("value", reading.ValidateValues(r.Temperature, r.Humidity))
	if b.broken == nil && r.MessageID == "" {
		r.MessageID = derivedID(r)
	}
	return r, age
}

// derivedID is the message id of a reading that came without one. It is the same each time that
// the reading is sent.
func derivedID(r reading.Reading) string {
	h := fnv.New64a()
	for _, bits := range []uint64{uint64(r.Time.UnixMicro()), math.Float64bits(r.Temperature + 0), math.Float64bits(r.Humidity + 0)} { //nolint:gosec // bits
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, bits))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

type batchResult struct {
	Status string `json:"status"` // accepted, duplicate or error
	Error  string `json:"error,omitzero"`
}

type batchResponse struct {
	Accepted   int   `json:"accepted"`
	Duplicates int   `json:"duplicates"`
	Errors     int   `json:"errors"`
	Ignored    int64 `json:"ignored,omitzero"` // metrics that do not measure the climate
	// Results are in the order of the readings.
	Results []batchResult `json:"results"`
}

var errTooMany = fmt.Errorf("a batch has at most %d readings", MaxBatch)

// parseReadings reads {"readings": […]} or lines of JSON. An invalid reading has its violation.
func parseReadings(kind string, body []byte) (batch, error) {
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
			return batch{}, malformed(err)
		}
	}
	switch {
	case len(in.Readings) == 0:
		return batch{}, errors.New("readings is required")
	case len(in.Readings) > MaxBatch:
		return batch{}, errTooMany
	}
	items := make([]batchReading, len(in.Readings))
	for i, text := range in.Readings {
		items[i].refuse("malformed", decode(text, &items[i]))
	}
	return batch{items: items}, nil
}

func (q *requests) readings(w http.ResponseWriter, r *http.Request) {
	q.batch(w, r, parseReadings)
}

// batch receives a request of a source; parse reads a body of a media type. 202 says that all
// valid readings are durable, in Pub/Sub or in the outbox. After any other answer the source
// sends the batch again, and the readings that were durable by then are duplicates.
func (q *requests) batch(w http.ResponseWriter, r *http.Request, parse func(kind string, body []byte) (batch, error)) {
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
	sent, err := parse(kind, body)
	if err != nil {
		from.refused(err.Error(), q.clock())
		if errors.Is(err, errTooMany) {
			q.reject(w, r, "", http.StatusRequestEntityTooLarge, "too_large", err.Error(), err)
		} else {
			q.reject(w, r, "", http.StatusBadRequest, "malformed", detailBody, err)
		}
		return
	}
	answer, err := q.storeBatch(r, from, sent)
	if err != nil {
		q.unavailable(w, r, from, err)
		return
	}
	write(w, http.StatusAccepted, answer)
}

// storeBatch makes the valid readings of a batch durable. After an error the whole batch must be
// sent again.
func (q *requests) storeBatch(r *http.Request, from *source, received batch) (batchResponse, error) {
	now, items := q.clock(), received.items
	if problem := q.monitor.clockProblem(); problem != nil && slices.ContainsFunc(items, func(b batchReading) bool { return b.Timestamp != "" }) {
		return batchResponse{}, problem
	}
	answer := batchResponse{Ignored: received.ignored, Results: make([]batchResult, len(items))}
	fresh, places := make([]timedReading, 0, len(items)), make([]int, 0, len(items))
	seen := make(map[reading.Identity]struct{}, len(items))
	for i := range items {
		item := &items[i]
		measured, age := item.reading(now)
		if item.broken == nil && !q.nodes.admit(item.NodeID, item.name, from.Name, remote(r), from.MaxNodes, now) {
			item.refuse("limit", fmt.Errorf("node_id exceeds the %d nodes that the source may bring", from.MaxNodes))
		}
		if item.broken != nil {
			continue
		}
		timed := q.prepare(measured, age, remote(r))
		answer.Results[i].Status = resultAccepted
		if _, twice := seen[timed.Identity()]; twice || timed.kept || timed.sent {
			answer.Results[i].Status = resultDuplicate
			continue
		}
		seen[timed.Identity()] = struct{}{}
		fresh, places = append(fresh, timed), append(places, i)
	}
	for j, result := range q.sender.send(r.Context(), fresh...) {
		switch result {
		case lost:
			return batchResponse{}, errors.New("Pub/Sub does not take readings, and the outbox cannot keep them")
		case unpublishable:
			items[places[j]].refuse("refused", errors.New("Pub/Sub refuses the reading"))
		case sent, kept:
		}
	}
	q.summarise(r, from, &answer, items)
	q.metrics.accepted.Add(float64(answer.Accepted))
	return answer, nil
}

// summarise writes the errors of readings into the answer, logs them and counts all results.
func (q *requests) summarise(r *http.Request, from *source, answer *batchResponse, items []batchReading) {
	results, problem := map[string]int64{}, ""
	if answer.Ignored > 0 {
		results[resultIgnored] = answer.Ignored
	}
	for i := range items {
		result, broken := &answer.Results[i], items[i].broken
		if broken != nil {
			who, rule := q.logRejection(r, items[i].NodeID, broken)
			problem = who + ": " + rule
			*result = batchResult{Status: "error", Error: rule}
			results[broken.reason]++
			answer.Errors++
			continue
		}
		results[result.Status]++
	}
	answer.Accepted, answer.Duplicates = int(results[resultAccepted]), int(results[resultDuplicate])
	from.count(results, problem, q.clock())
}
