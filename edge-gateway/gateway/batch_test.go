package gateway_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

const readingsPath = "/api/v1/readings"

// withSource lets the address of [site.send] send batches.
func withSource() gateway.Config {
	return gateway.Config{ProbeEvery: time.Millisecond, Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "poller", Networks: []string{"192.168.7.0/24"}}}}}
}

// batch posts readings and returns the status and what became of each.
func (s *site) batch(body string) string {
	s.tb.Helper()
	status, answer := s.send(http.MethodPost, readingsPath, body)
	results := []string{strconv.Itoa(status)}
	var got struct {
		Results []struct{ Status, Error string }
	}
	must.Do(s.tb, json.Unmarshal([]byte(answer), &got))
	for _, r := range got.Results {
		results = append(results, strings.Trim(r.Status+": "+r.Error, ": "))
	}
	return strings.Join(results, ", ")
}

// TestBatchAnswersEachReading shows contract 8.23 and 8.24: one bad reading refuses itself
// alone.
func TestBatchAnswersEachReading(t *testing.T) {
	t.Parallel()
	const good = `{"node_id":"good","id":"g","temperature":20}`
	stamp := func(ahead time.Duration) string {
		return time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC).Add(ahead).Format(time.RFC3339Nano)
	}
	for item, want := range map[string]string{
		`{"node_id":"n1","id":"1","temperature":20.5,"humidity":40}`:                                 "accepted",
		`{"node_id":"n1","id":"1","humidity":40,"age_s":60}`:                                         "accepted",
		`{"node_id":"n1","timestamp":"` + stamp(-7*24*time.Hour) + `","temperature":"-40"}`:          "accepted",
		`{"node_id":"n1","timestamp":"` + stamp(2*time.Minute) + `","temperature":20}`:               "accepted",
		`{"node_id":"n1","timestamp":"2026-11-20T04:00:00.5+01:00","temperature":20}`:                "accepted",
		`{"node_id":"n1","timestamp":"` + stamp(-7*24*time.Hour-time.Second) + `","temperature":20}`: "error: timestamp must be at most 7 days old",
		`{"node_id":"n1","timestamp":"` + stamp(2*time.Minute+time.Second) + `","temperature":20}`:   "error: timestamp must be at most 7 days old",
		`{"node_id":"n1","timestamp":"yesterday","temperature":20}`:                                  "error: timestamp must be a time",
		`{"node_id":"n1","timestamp":1,"temperature":20}`:                                            "error: timestamp must be a string",
		`{"node_id":"n1","timestamp":"` + stamp(0) + `","age_s":1,"temperature":20}`:                 "error: timestamp and age_s exclude",
		`{"node_id":"n1","id":"1","age_s":3601,"temperature":20}`:                                    "error: age_s must be between",
		`{"node_id":"n1","temperature":20}`:                                                          "error: id is required",
		`{"node_id":"n1","id":"` + strings.Repeat("i", 65) + `","temperature":20}`:                   "error: message id must be",
		`{"node_id":"a b","id":"1","temperature":20}`:                                                "error: node_id must be",
		`{"node_id":"coldaisle.probe","id":"1","temperature":20}`:                                    "error: node_id must not be",
		`{"id":"1","temperature":20}`:                                                                "error: node_id is required",
		`{"node_id":"n1","id":"1"}`:                                                                  "error: temperature or humidity is required",
		`{"node_id":"n1","id":"1","temperature":125.1}`:                                              "error: temperature must be between",
		`{"node_id":"n1","id":"1","temperature":20,"humidity":101}`:                                  "error: humidity must be between",
		`{"node_id":"n1","id":"1","temperature":"NaN"}`:                                              "error: temperature must be a number",
		`{"node_id":"n1","id":"1","temperature":1e999}`:                                              "error: temperature is too large",
		`{"node_id":"n1","id":"1","temperature":20,"Temperature":30}`:                                `error: field "temperature" is given twice`,
		`[1]`: "error: the body must be a JSON object",
		good:  "duplicate",
	} {
		t.Run(item, func(t *testing.T) {
			t.Parallel()
			for form, body := range map[string]string{
				"object": `{"readings":[` + good + `,` + item + `]}`,
				"lines":  good + "\r\n\n" + item,
			} {
				s := newSiteWith(t, withSource(), nil)
				if got := s.batch(body); !strings.HasPrefix(got, "202, accepted, "+want) {
					t.Errorf("%s: answered %q, want %q", form, got, want)
				}
				published := s.published.all()
				must.Equal(t, fmt.Sprintf("%s: published %v", form, published), want == "accepted", len(published) == 2)
			}
		})
	}
}

// TestRepeatedBatch sends batches again after each answer that a source may get, over
// restarts: every reading that was answered is delivered under one identity, contract 8.24.
func TestRepeatedBatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSiteWith(t, withSource(), noOutbox(errors.New("no disk")))
	body := `{"readings":[
		{"node_id":"n1","id":"a","temperature":20},
		{"node_id":"n2","timestamp":"2026-11-20T02:00:00Z","humidity":40},
		{"node_id":"n2","timestamp":"2026-11-13T03:00:00Z","temperature":21}]}`
	s.published.fail(errAway)
	must.Equal(t, "answer while nothing is durable", "503", s.batch(body))
	// The outbox opens; Pub/Sub is still away. The first reading's time is of this process.
	box := openBox(t, dir, s.clock)
	s.open(withSource(), box)
	must.Equal(t, "answer", "202, accepted, accepted, accepted", s.batch(body))
	must.Equal(t, "answer the second time", "202, duplicate, duplicate, duplicate", s.batch(body))
	// Killed between 202 and publishing.
	must.Do(t, box.Close())
	box = openBox(t, dir, s.clock)
	s.open(withSource(), box)
	must.Equal(t, "answer after a restart", "202, duplicate, duplicate, duplicate", s.batch(body))
	s.published.fail(nil)
	s.run()
	times := map[string]bool{}
	for _, data := range s.delivered(3) {
		times[data.Reading.Time.Format("2 15:04:05.999999")] = true
	}
	must.Equal(t, "delivered at", map[string]bool{"20 03:00:00": true, "20 02:00:00": true, "13 03:00:00": true}, times)
	must.Eventually(t, "publishing", func() bool { return strings.Contains(s.health(), `"up":true`) })
	live := `{"node_id":"n3","id":"a","temperature":20}` + "\n" + `{"node_id":"n4","id":"a","temperature":20}`
	// Pub/Sub fails for one of two: that one goes into the outbox, and both are durable.
	s.published.judge(but("n4", errAway))
	must.Equal(t, "answer", "202, accepted, accepted", s.batch(live))
	must.Equal(t, "answer the second time", "202, duplicate, duplicate", s.batch(live))
	s.published.fail(nil)
	s.delivered(5)
	// Refused for what is in it: it would be refused again.
	s.published.judge(but("n5", gateway.ErrRefused))
	must.Equal(t, "answer", "202, duplicate, error: Pub/Sub refuses the reading", s.batch(strings.ReplaceAll(live, "n4", "n5")))
	must.Contain(t, "health", s.health(), `"name":"poller"`, `"refused":1`, `"nodes":5`)
}

// TestBatchIsOneWrite counts the syncs of a batch by what coalesces: all of it is appended at
// once.
func TestBatchIsOneWrite(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, withSource(), nil)
	counted := &appends{Outbox: s.box}
	s.open(withSource(), counted)
	s.published.fail(errAway)
	var body strings.Builder
	for i := range gateway.MaxBatch {
		fmt.Fprintf(&body, `{"node_id":"n%d","id":"%d","temperature":20}`+"\n", i%7, i)
	}
	must.Equal(t, "answer", "202"+strings.Repeat(", accepted", gateway.MaxBatch), s.batch(body.String()))
	must.Equal(t, "appends", 1, counted.calls)
	must.Equal(t, "readings kept", gateway.MaxBatch, s.box.Stats().Pending)
	if bytes := s.box.Stats().Bytes; bytes > 200*gateway.MaxBatch {
		t.Errorf("%d bytes on disk: windows are written more than once", bytes)
	}
	body.WriteString(`{"node_id":"n1","id":"x","temperature":20}`)
	must.Equal(t, "answer to one reading too many", "413", s.batch(body.String()))
}

// TestBatchWithoutAGrant sends a batch while the API has given no access token: all of it is kept.
func TestBatchWithoutAGrant(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, withSource(), nil)
	none := gateway.Granted(func() (gateway.Publisher, error) { return nil, errAway })
	s.gateway = gateway.New(withSource(), none, s.box, s.clock, logging.Discard())
	const two = `{"node_id":"n1","id":"1","temperature":20}` + "\n" + `{"node_id":"n2","id":"2","temperature":21}`
	must.Equal(t, "answer", "202, accepted, accepted", s.batch(two))
	must.Equal(t, "kept", 2, s.box.Stats().Pending)
}

// TestBatchWaitsForTheClock shows contract 8.24: a timestamp cannot be judged by a wrong clock.
func TestBatchWaitsForTheClock(t *testing.T) {
	t.Parallel()
	wrong := errors.New("slow by 3h0m0s")
	config := withSource()
	config.Checks = []gateway.Check{{Name: "clock", Clock: true, Now: func() error { return wrong }}}
	s := newSiteWith(t, config, nil)
	const dated, undated = `{"node_id":"n1","timestamp":"2026-11-20T06:00:00Z","temperature":20}`, `{"node_id":"n1","id":"1","temperature":20}`
	must.Equal(t, "answer to a timestamp", "503", s.batch(undated+"\n"+dated))
	must.Equal(t, "answer to a reading without one", "202, accepted", s.batch(undated))
}

// TestHostileSource shows contract 8.23: what is not a source gets nothing done, and what is
// one harms nobody else.
func TestHostileSource(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	config := gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{
		{Name: "by-address", Networks: []string{"10.0.0.7", "fe80::/10", "::ffff:10.3.0.1", "::ffff:10.4.0.0/112"}, MaxNodes: 3},
		{Name: "by-token", Token: token},
		{Name: "by-both", Networks: []string{"10.1.0.0/16"}, Token: strings.Repeat(token, 2)},
	}}}
	const reading = `{"node_id":"n1","id":"1","temperature":20}`
	for name, c := range map[string]struct {
		address, authorization, body string
		status                       int
		want                         string
	}{
		"its address":                  {"10.0.0.7", "", reading, 202, `"accepted":1`},
		"its address within IPv6":      {"::ffff:10.0.0.7", "", reading, 202, `"accepted":1`},
		"one written as IPv6":          {"10.3.0.1", "", reading, 202, `"accepted":1`},
		"a network written as IPv6":    {"10.4.9.9", "", reading, 202, `"accepted":1`},
		"beside that network":          {"10.5.9.9", "", reading, 403, "Not a source"},
		"a link-local one with a zone": {"fe80::1%eth0", "", reading, 202, `"accepted":1`},
		"another address":              {"10.0.0.8", "", reading, 403, "Not a source"},
		"its token":                    {"10.9.9.9", "Bearer " + token, reading, 202, `"accepted":1`},
		"no token where one is needed": {"10.1.0.1", "", reading, 403, "Not a source"},
		"the other's token":            {"10.1.0.1", "Bearer " + token + "x", reading, 403, "Not a source"},
		"its token from elsewhere":     {"10.2.0.1", "Bearer " + strings.Repeat(token, 2), reading, 403, "Not a source"},
		"token and address":            {"10.1.0.1", "Bearer " + strings.Repeat(token, 2), reading, 202, `"accepted":1`},
		"an empty token":               {"10.9.9.9", "Bearer ", reading, 403, "Not a source"},
		"a token of another scheme":    {"10.9.9.9", "Basic " + token, reading, 403, "Not a source"},
		"a body over 1 MiB":            {"10.0.0.7", "", strings.Repeat(" ", gateway.MaxBatchBody+1), 413, "1048576"},
		"nothing":                      {"10.0.0.7", "", "", 400, "not JSON"},
		"no number of JSON's":          {"10.0.0.7", "", `{"readings":[{"node_id":"n1","id":"1","temperature":NaN}]}`, 400, "not JSON"},
		"the same in lines":            {"10.0.0.7", "", reading + "\n" + `{"node_id":"n1","id":"2","temperature":NaN}`, 202, `"accepted":1,"duplicates":0,"errors":1`},
		"an empty batch":               {"10.0.0.7", "", `{"readings":[]}`, 400, "readings is required"},
		"an array":                     {"10.0.0.7", "", `[` + reading + `]`, 400, "JSON object"},
		"readings that are none":       {"10.0.0.7", "", `{"readings":7}`, 400, "readings must be an array"},
		"half an object":               {"10.0.0.7", "", `{"readings":[` + reading, 400, "not JSON"},
		"deep nesting":                 {"10.0.0.7", "", `{"readings":` + strings.Repeat("[", 100_000), 400, "not JSON"},
		"binary":                       {"10.0.0.7", "", "\x1f\x8b\x08", 400, "not JSON"},
		"more ids than it may":         {"10.0.0.7", "", strings.Join([]string{reading, strings.ReplaceAll(reading, "n1", "n2"), strings.ReplaceAll(reading, "n1", "n3"), strings.ReplaceAll(reading, "n1", "n4")}, "\n"), 202, `"accepted":3,"duplicates":0,"errors":1`},
		"one reading a thousand times": {"10.0.0.7", "", strings.Repeat(reading+"\n", 1000), 202, `"accepted":1,"duplicates":999,"errors":0`},
		"a forged line":                {"10.0.0.7", "", reading + "\n" + `{"node_id":"n\n1","id":"1","temperature":20}`, 202, `"errors":1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, config, nil)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, readingsPath, strings.NewReader(c.body))
			request.RemoteAddr = "[" + c.address + "]:4711"
			request.Header.Set("Authorization", c.authorization)
			recorder := serve(t, s.gateway, request)
			if answer := recorder.Body.String(); recorder.Code != c.status || !strings.Contains(answer, c.want) {
				t.Errorf("answered %d %.300s, want %d %s", recorder.Code, answer, c.status, c.want)
			}
			if told := strings.Contains(s.health(), `"batch":1},"problem":`); told != (c.status == 400 || c.status == 413) {
				t.Errorf("health says %s", s.health())
			}
			must.Equal(t, "readings are published", c.status == http.StatusAccepted, len(s.published.all()) > 0)
		})
	}
}

// appends counts what is appended to an outbox at once.
type appends struct {
	gateway.Outbox

	calls int
}

func (a *appends) AppendAll(records []outbox.Record) []error {
	a.calls++
	return a.Outbox.AppendAll(records)
}

// TestReadSources refuses what would let in nobody, or anybody.
func TestReadSources(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{}`: "", // as systemd hands it over where there is no file
		`{"sources":[{"name":"a","networks":["10.0.0.1","10.1.0.0/16","fd00::/8"]},{"name":"b","token":"0123456789abcdef"}]}`: "",
		`{"sources":[{"name":"a"}]}`:                                                       "needs networks or a token",
		`{"sources":[{"name":"a","networks":["10.0.0.1/40"]}]}`:                            `has "10.0.0.1/40"`,
		`{"sources":[{"name":"a","networks":["bmc"]}]}`:                                    `has "bmc"`,
		`{"sources":[{"name":"a","token":"short"}]}`:                                       "token of 16",
		`{"sources":[{"name":"a b","token":"0123456789abcdef"}]}`:                          "must have a name",
		`{"sources":[{"name":"a","token":"0123456789abcdef","max_nodes":-1}]}`:             "max_nodes",
		`{"sources":[{"name":"a","networks":["::1"]},{"name":"a","networks":["::2"]}]}`:    "given twice",
		`{"sources":["poller"]}`:                                                           `unmarshal JSON string within "/sources/0"`,
		`{"telegraf":[{"metric":"a","field":"temp*","unit":"celsius","node_tags":["b"]}]}`: "may have a * at its beginning alone",
		`{"telegraf":[{"metric":"a","field":"**","unit":"celsius","node_tags":["b"]}]}`:    "may have a * at its beginning alone",
		`{"telegraf":[{"metric":"a*","field":"t","unit":"celsius","node_tags":["b"]}]}`:    "must have a whole name or * as its metric",
		`{"telegraf":[{"metric":"*","field":"*_t","unit":"celsius","node_tags":["b"]}]}`:   "",
		`{"telegraf":[{"metric":"a","field":"t","unit":"centigrade","node_tags":["b"]}]}`:  `has the unit "centigrade", which is none of %, c, celsius, decicelsius,`,
		`{"telegraf":[{"metric":"a","field":"t","node_tags":["b"]}]}`:                      "a unit or a unit_tag",
		`{"source":[]}`: `unknown object member name "source"`,
		`{`:             "read sources",
		`{"sources":[{"name":"a","networks":["::1"]}]} {"sources":[{"name":"b","networks":["::2"]}]}`: "after top-level value",
		`{"sources":[{"name":"a","networks":["::1"]}],"sources":[{"name":"b","networks":["::2"]}]}`:   `duplicate object member name "sources"`,
	} {
		path := filepath.Join(t.TempDir(), "sources.json")
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		file, err := gateway.ReadSources(path)
		must.Contain(t, content, fmt.Sprint(err), cmp.Or(want, "<nil>"))
		if err != nil && (len(file.Sources) > 0 || strings.Contains(err.Error(), "Go ")) {
			t.Errorf("%s: %v in terms of Go, or with sources: %v", content, err, file.Sources)
		}
	}
}
