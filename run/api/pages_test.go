package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// next is the address of the page behind this one, "" on the last.
func (r reply) next(tb testing.TB) string {
	tb.Helper()
	link := r.header.Get("Link")
	if link == "" {
		return ""
	}
	found := regexp.MustCompile(`^<(/[^<>]*)>; rel="next"$`).FindStringSubmatch(link)
	if found == nil {
		tb.Fatalf("Link %s", link)
	}
	return found[1]
}

// pagedList is a list of the document that is cut by limit.
type pagedList struct {
	path string // with a query that selects what add adds
	id   string // the field that tells rows apart
	// add is a statement that adds rows from $1 to $2 of customer $3, the higher the newer.
	add string
}

func pagedLists(room int64) map[string]pagedList {
	rows := func(table, columns, values string) string {
		values = strings.ReplaceAll(values, "@", "'2026-03-01'::timestamptz + i / 3 * interval '1 s'")
		return `INSERT INTO ` + table + ` (` + columns + `) SELECT ` + values + ` FROM generate_series($1::int, $2::int) i`
	}
	return map[string]pagedList{
		"listAlertHistory": {"/api/v1/alerts/history?sensor_id=node-1", "id", rows("alerts",
			"customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold", "$3, 'node-1', 'temperature', 'm', @, 'm' || i, 60, 50")},
		"listIncidents":  {"/api/v1/incidents?cause=too_hot", "id", pastIncidents},
		"listExcursions": {"/api/v1/excursions?kind=threshold", "id", pastIncidents},
		"listPredictions": {"/api/v1/prediction-feedback?status=unvalidated", "id", rows("prediction_feedback",
			"sensor_id, timestamp, message_id, channel", "'node-1', @, 'm' || i, $3")},
		"listDrills": {"/api/v1/drills", "id", rows("drills",
			"customer_id, code_hash, on_site, rule_id, quantity, direction, limit_value, severity, node_id, sensor_name, room_id, room_name, started_by, created_at",
			"$3, sha256(('d' || i)::bytea), false, 1, 'temperature', 'above', 27, 'warning', 'node-1', 'Rack', 1, 'Hall', 'Ana', @")},
		"listTrainingRuns": {"/api/v1/ml/retraining/history", "id", rows("model_training_runs",
			"customer_id, started_at, completed_at, status, triggered_by", "$3, @, now(), 'failed', 'manual'")},
		"listAuditLog": {"/api/v1/audit?operation=counted", "id", rows("audit_log", "at, customer_id, actor, operation", "@, $3, 'system', 'counted'")},
		// By identifier: the newer come first here, too.
		"getReport": {fmt.Sprintf("/api/v1/data/report/%d?start_time=2026-03-01&end_time=2026-03-02", room), "sensor_id", rows("sensors",
			"node_id, customer_id, room_id, name, type, signed_from",
			"'a' || 1000 - i, $3, (SELECT room_id FROM sensors WHERE customer_id = $3 AND node_id = 'node-1'), 'n', 'T', '-infinity'")},
	}
}

// TestListsAreReadPageByPage walks through each list that is cut by limit while rows arrive:
// every row that was there comes once, in the order of the whole, and the total is that of
// the moment. A cursor of another account, another list or none is refused. Contract 1.18.
func TestListsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room, closet := a.heldSensor(t, "node-1"), a.room(t, "Closet")
	s.holdsBefore(t, "node-1")
	lists := pagedLists(room)
	for _, op := range operations(t) {
		if _, ok := lists[op.id]; !ok && op.Parameters.GetByInAndName("query", "limit") != nil && op.id != "listIncidentChanges" {
			t.Errorf("%s has a limit and no case", op.id)
		}
	}
	cursors, from := map[string]string{}, 0
	for name, l := range lists {
		from += 100 // incidents and excursions come together
		path := l.path + map[bool]string{true: "&", false: "?"}[strings.Contains(l.path, "?")]
		s.execute(t, l.add, from+1, from+25, a.id)
		ids := func(got reply) (ids []any) {
			t.Helper()
			for _, row := range into[[]map[string]any](t, got) {
				ids = append(ids, row[l.id])
			}
			return ids
		}
		total := func(got reply, want int) {
			t.Helper()
			must.Equal(t, name+": X-Total-Count", strconv.Itoa(want), got.header.Get("X-Total-Count"))
		}
		all := s.call(t, a.token, http.MethodGet, path+"limit=500", "")
		whole := ids(all)
		count := len(whole)
		if count < 25 || all.next(t) != "" {
			t.Fatalf("%s: %d rows, Link %s", name, count, all.header.Get("Link"))
		}
		total(all, count)
		got := s.call(t, a.token, http.MethodGet, path+"limit=7", "")
		total(got, count)
		walked, arrived := ids(got), 0
		for next := got.next(t); next != ""; next = got.next(t) {
			cursors[name] = next
			arrived++
			s.execute(t, l.add, from+25+3*arrived, from+27+3*arrived, a.id) // three newer ones, of one time
			got = s.call(t, a.token, http.MethodGet, next, "")
			total(got, count+3*arrived)
			walked = append(walked, ids(got)...)
		}
		must.Equal(t, name+", page by page", whole, walked)
		if arrived < 3 {
			t.Errorf("%s: %d pages", name, arrived+1)
		}
	}
	const refused = "after: must be that of a Link header of this list"
	for name, next := range cursors {
		path, after, _ := strings.Cut(next, "after=")
		cursor, rest, _ := strings.Cut(after, "&")
		if name != "getReport" { // another's room is absent before that
			s.call(t, other.token, http.MethodGet, next, "").says(t, 400, refused)
		}
		plain := must.Get(base64.RawURLEncoding.DecodeString(cursor))(t)
		for _, wrong := range []string{
			"1", "node-1", cursor[1:], base64.RawURLEncoding.EncodeToString([]byte("null")),
			base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), `"last":`, `"lost":`, 1))),
			base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), fmt.Sprintf(`"account":%d`, a.id), fmt.Sprintf(`"account":%d`, other.id), 1))),
		} {
			s.call(t, a.token, http.MethodGet, path+"after="+wrong+"&"+rest, "").says(t, 400, refused)
		}
		for list, of := range cursors {
			if list != name {
				path, after, _ := strings.Cut(of, "after=")
				_, rest, _ := strings.Cut(after, "&")
				s.call(t, a.token, http.MethodGet, path+"after="+cursor+"&"+rest, "").says(t, 400, refused)
			}
		}
	}
	elsewhere := strings.Replace(cursors["getReport"], fmt.Sprintf("/report/%d?", room), fmt.Sprintf("/report/%d?", closet), 1)
	s.call(t, a.token, http.MethodGet, elsewhere, "").says(t, 400, refused)

	// CSV has the rest, too, and says how many there are.
	csv := s.call(t, a.token, http.MethodGet, cursors["listAuditLog"]+"&format=csv", "").has(t, 200, ",counted,")
	must.Equal(t, "X-Total-Count of CSV is there", true, csv.header.Get("X-Total-Count") != "")
}

// TestPagesOfAKeyForRooms gives a key for one of two rooms its rows and their number alone. Contract 1.18, 12.4.
func TestPagesOfAKeyForRooms(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "node-1")
	lab := a.heldSensor(t, "node-2")
	key := a.key(t, fmt.Sprintf(`"scope":"read","room_ids":[%d]`, lab))
	for name, path := range map[string]string{"listAlertHistory": "/api/v1/alerts/history?limit=2", "listPredictions": "/api/v1/prediction-feedback?limit=2"} {
		for i, node := range []string{"node-1", "node-2"} {
			s.holdsBefore(t, node)
			s.execute(t, strings.ReplaceAll(pagedLists(0)[name].add, "node-1", node), 1, []int{9, 5}[i], a.id)
		}
		for token, want := range map[string]int{a.token: 14, key.text: 5} {
			rows := 0
			for next := path; next != ""; {
				got := s.call(t, token, http.MethodGet, next, "")
				must.Equal(t, name+": X-Total-Count", strconv.Itoa(want), got.header.Get("X-Total-Count"))
				rows += strings.Count(string(got.body), `"sensor_id"`)
				next = got.next(t)
			}
			must.Equal(t, name+": rows", want, rows)
		}
	}
}
