package ledger_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// gateway answers with one status after the other, 0 for nothing at all.
type gateway struct{ statuses []int }

func (g *gateway) RoundTrip(*http.Request) (*http.Response, error) {
	status := g.statuses[0]
	g.statuses = g.statuses[1:]
	if status == 0 {
		return nil, errors.New("connection reset by peer")
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// second is the moment of an attempt: each takes a second.
func second(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }

// TestLedger sends one reading of 60 °C and 40 %, gets the given answers, and finds it stored at the given times.
func TestLedger(t *testing.T) {
	t.Parallel()
	once := ledger.Totals{Sent: 1, Answered: 1, Stored: 1, Alerted: 1}
	with := func(change func(*ledger.Totals)) ledger.Totals { sum := once; change(&sum); return sum }
	unexplained := ledger.Totals{Sent: 1, Unexplained: 1}
	cases := map[string]struct {
		answers     []int
		stored      []time.Time
		temperature float64 // as stored; 0 for as sent
		noAlert     bool
		humid       bool // an alert of humidity, which nothing calls for
		age         int  // seconds that the node has kept it, as it says
		want        ledger.Totals
		wantErr     string
	}{
		"published":                                     {answers: []int{200}, stored: []time.Time{second(0)}, want: once},
		"kept and delivered later":                      {answers: []int{500}, stored: []time.Time{second(0)}, want: once},
		"sent again after a failure":                    {answers: []int{500, 200}, stored: []time.Time{second(0)}, want: once},
		"sent later, by its age":                        {answers: []int{200}, age: 30, stored: []time.Time{second(-30)}, want: once},
		"sent later, not by its age":                    {answers: []int{200}, age: 30, stored: []time.Time{second(-31)}, want: unexplained, wantErr: "is not stored"},
		"lost":                                          {answers: []int{200}, want: unexplained, wantErr: "is not stored"},
		"lost though the outbox had it":                 {answers: []int{500}, want: unexplained, wantErr: "is not stored"},
		"stored twice":                                  {answers: []int{500, 200}, stored: []time.Time{second(0), second(1)}, want: unexplained, wantErr: "stored 2 times"},
		"stored again after a death":                    {answers: []int{0, 200}, stored: []time.Time{second(0), second(1)}, want: with(func(s *ledger.Totals) { s.Duplicated = 1 })},
		"stored more often than requests had no answer": {answers: []int{0, 200}, stored: []time.Time{second(0), second(1), second(1).Add(time.Millisecond)}, want: unexplained, wantErr: "stored 3 times"},
		"without an answer":                             {answers: []int{0}, want: ledger.Totals{Sent: 1, Unanswered: 1}},
		"stored, the answer lost":                       {answers: []int{0}, stored: []time.Time{second(0)}, want: with(func(s *ledger.Totals) { s.Answered, s.Unanswered = 0, 1 })},
		"refused":                                       {answers: []int{400}, want: ledger.Totals{Sent: 1}},
		"refused and stored":                            {answers: []int{400}, stored: []time.Time{second(0)}, want: unexplained, wantErr: "when it was not sent"},
		"stored with another time":                      {answers: []int{200}, stored: []time.Time{second(5)}, want: unexplained, wantErr: "when it was not sent"},
		"stored with another value":                     {answers: []int{200}, stored: []time.Time{second(0)}, temperature: 61, want: unexplained, wantErr: "was sent as 60"},
		"without its alert":                             {answers: []int{200}, stored: []time.Time{second(0)}, noAlert: true, want: unexplained, wantErr: "temperature alert is missing"},
		"with an alert too many":                        {answers: []int{200}, stored: []time.Time{second(0)}, humid: true, want: unexplained, wantErr: "humidity alert that is not due"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			pgtest.NewStores(pool).Owner(t, "customer1", "rack-1")
			must.Get(pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(t) // the reading is older
			now := began
			l := ledger.New(func(string) alert.Thresholds { return alert.Defaults() }, func() time.Time { return now })
			client := &http.Client{Transport: tick{l.Transport(&gateway{c.answers}), &now}}
			for range c.answers {
				post(t, client, c.age)
			}
			for _, at := range c.stored {
				r := reading.Reading{NodeID: "rack-1", MessageID: "1", Time: at, Temperature: 60, Humidity: 40}
				if c.temperature != 0 {
					r.Temperature = c.temperature
				}
				must.Do(t, pgreadings.New(pgtest.NewStores(pool).DB, nil, time.Now).Append(t.Context(), []reading.Reading{r}))
				raise(t, pool, r, !c.noAlert, c.humid)
			}
			must.Contain(t, "the error", fmt.Sprint(l.Close(t.Context(), pool)), cmp.Or(c.wantErr, "<nil>"))
			must.Equal(t, "", c.want, l.Sum())
		})
	}
}

// tick lets every request take a second.
type tick struct {
	next http.RoundTripper
	now  *time.Time
}

func (c tick) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	*c.now = c.now.Add(time.Second)
	return response, err
}

func post(t *testing.T, client *http.Client, age int) {
	t.Helper()
	body := fmt.Sprintf(`{"id":"1","node_id":"rack-1","temperature":60,"humidity":40,"age_s":%d}`, age)
	response, err := client.Post("http://gateway/api/v1/message", "application/json", strings.NewReader(body))
	if err == nil {
		_ = response.Body.Close()
	}
}

// raise stores the alerts of a reading for an owner.
func raise(t *testing.T, pool *pgxpool.Pool, r reading.Reading, hot, humid bool) {
	t.Helper()
	s := pgtest.NewStores(pool)
	for kind, wanted := range map[alert.Type]bool{alert.Temperature: hot, alert.Humidity: humid} {
		if !wanted {
			continue
		}
		event := alert.Event{NodeID: r.NodeID, MessageID: r.MessageID, Time: r.Time, Type: kind, Value: 60, Threshold: 50, Temperature: 60, Humidity: 40}
		must.Get(s.InsertAlert(t.Context(), event))(t)
	}
}

// TestIncidentsAreCompared stores alerts and incidents as storealert does, and then
// breaks them in each of the ways that the comparison names.
func TestIncidentsAreCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, want string }{
		"as they are":          {`SELECT`, ""},
		"an incident is lost":  {`DELETE FROM excursions WHERE id = (SELECT min(id) FROM excursions)`, "is in 0 incidents"},
		"one is there twice":   {`INSERT INTO excursions (customer_id, kind, channel, node_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time, resolution) SELECT customer_id, kind, channel, node_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time, resolution FROM excursions WHERE NOT lasting`, "is in 2 incidents"},
		"a peak is wrong":      {`UPDATE excursions SET peak = 99 WHERE lasting`, "has peak 99"},
		"one begins too early": {`UPDATE excursions SET start_time = start_time - interval '1 second' WHERE lasting`, "its alerts begin"},
		"one is two":           {`UPDATE excursions SET end_time = end_time + interval '5 minutes' WHERE NOT lasting`, "should be one"},
		"one does not end":     {`UPDATE node_state SET timestamp = timestamp + interval '2 minutes'`, "its node sent at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storeIncidents(t)
			must.Get(db.Exec(t.Context(), c.change))(t)
			count, err := ledger.Incidents(t.Context(), db)
			if c.want == "" {
				must.Equal(t, "incidents", 2, count)
			}
			must.Contain(t, "the error", fmt.Sprint(err), cmp.Or(c.want, "<nil>"))
		})
	}
}

// storeIncidents has a sensor be too hot twice, the second time until now.
func storeIncidents(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	s.Owner(t, "anna12", "n1")
	must.Get(pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'; UPDATE sensors SET placed_at = '2000-01-01'`))(t)
	first := time.Now().UTC().Truncate(time.Second).Add(-15 * time.Minute)
	for minute, temperature := range []float64{51, 53, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 52, 51} {
		r := reading.Reading{
			NodeID: "n1", MessageID: first.Add(time.Duration(minute) * time.Minute).Format("150405"), Time: first.Add(time.Duration(minute) * time.Minute),
			Temperature: temperature, Humidity: 40,
		}
		for _, event := range alert.Exceeded(r, alert.Defaults()) {
			must.Get(s.InsertAlert(t.Context(), event))(t)
		}
		must.Do(t, s.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		must.Do(t, s.Judge(t.Context(), incidents.Judged{Reading: r, Arrived: r.Time, Defaults: alert.Defaults()}))
	}
	return pool
}
