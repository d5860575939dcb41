package modeltest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the API answers, as the model's lines.

// compare compares the answers to each account: all, or those that a command may have
// changed and, in turn, of another kind.
func (w *world) compare(everything bool) {
	turn := []string{"rooms", "readings", "alerts", "rules", "incidents"}
	for k, a := range w.model.accounts {
		for g, group := range turn {
			// Of one account what may have changed, of the others something in turn.
			mine, other := a == w.actor && w.concerned[group], w.commands%(len(turn)*len(w.model.accounts)) == k*len(turn)+g
			if !everything && !mine && !other {
				continue
			}
			var want, got []string
			switch group {
			case "rooms":
				want, got = w.model.roomLines(a), w.roomLines(a)
			case "readings":
				want, got = w.model.readingLines(a, w.halfway()), w.readingLines(a)
			case "alerts":
				want, got = w.model.alertLines(a), w.alertLines(a)
			case "rules":
				want, got = w.model.ruleLines(a), w.ruleLines(a)
			case "incidents":
				if len(w.pendingData(func(d *sentData) bool { return d.ingested && d.detected })) > 0 {
					continue // they are known once all is judged
				}
				want, got = append(w.model.excursionLines(a), w.model.incidentLines(a)...), w.excursionLines(a)
			}
			if text := differ(want, got); text != "" {
				w.tb.Errorf("after %q, at %s, account %d's %s differ:\n%s", w.last, short(w.clock.Now()), a.index, group, text)
			}
		}
	}
	clear(w.concerned)
}

func (w *world) halfway() (pending []*reading) {
	for _, d := range w.data {
		pending = append(pending, d.reading)
	}
	return pending
}

func (w *world) roomLines(a *account) (lines []string) {
	type answer struct {
		ID   int64
		Name string
	}
	type sensor struct{ ID string }
	for _, r := range decode[[]answer](w.system, w.token(a), fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)) {
		lines = append(lines, "room "+r.Name)
		for _, s := range decode[[]sensor](w.system, w.token(a), fmt.Sprintf("/api/v1/sensors/list_sensors/%d", r.ID)) {
			lines = append(lines, fmt.Sprintf("sensor %s in %s", s.ID, r.Name))
		}
		for _, other := range w.model.accounts {
			if other != a {
				w.expect("another's room", http.StatusNotFound, w.call(w.token(other), http.MethodGet, fmt.Sprintf("/api/v1/sensors/list_sensors/%d", r.ID), nil, nil))
			}
		}
	}
	return lines
}

type readingAnswer struct {
	NodeID                string `json:"node_id"`
	Timestamp             time.Time
	Temperature, Humidity float64
}

func (w *world) readingLines(a *account) (lines []string) {
	var ids []string
	for n := range 4 {
		ids = append(ids, w.node(n))
	}
	var newest map[string]readingAnswer
	w.expect("multi-sensor", http.StatusOK, w.call(w.token(a), http.MethodPost, "/api/v1/data/multi-sensor", map[string]any{"node_ids": ids}, &newest))
	for _, r := range newest {
		lines = append(lines, fmt.Sprintf("newest %s %s %s %s", r.NodeID, short(r.Timestamp), number(r.Temperature), number(r.Humidity)))
	}
	from, until := start().Add(-3*time.Hour).Format(time.RFC3339), w.clock.Now().Add(time.Minute).Format(time.RFC3339)
	for _, node := range ids {
		path := fmt.Sprintf("/api/v1/data/historical/%s?start_time=%s&end_time=%s", node, from, until)
		var all []readingAnswer
		want := http.StatusNotFound
		if a.sensor(node) != nil {
			want = http.StatusOK
		}
		w.expect("historical", want, w.call(w.token(a), http.MethodGet, path, nil, &all))
		for _, r := range all {
			lines = append(lines, fmt.Sprintf("reading %s %s %s %s", r.NodeID, short(r.Timestamp), number(r.Temperature), number(r.Humidity)))
		}
	}
	return lines
}

func (w *world) alertLines(a *account) (lines []string) {
	type row struct {
		SensorID     string `json:"sensor_id"`
		AlertType    string `json:"alert_type"`
		Message      string
		Timestamp    time.Time
		Acknowledged bool
	}
	active := 0
	for _, e := range decode[[]row](w.system, w.token(a), "/api/v1/alerts/history?limit=500") {
		lines = append(lines, fmt.Sprintf("alert %s %s %s %s acknowledged %t", e.SensorID, e.AlertType, short(e.Timestamp), e.Message, e.Acknowledged && !a.fuzzy))
		if !e.Acknowledged {
			active++
		}
	}
	w.expect("number of active alerts", active, len(decode[[]row](w.system, w.token(a), "/api/v1/alerts/active")))
	return lines
}

func (w *world) ruleLines(a *account) (lines []string) {
	var t struct {
		MaxTemperature float64 `json:"max_temperature"`
		MaxHumidity    float64 `json:"max_humidity"`
	}
	w.expect("thresholds", http.StatusOK, w.call(w.token(a), http.MethodGet, fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), nil, &t))
	lines = append(lines, fmt.Sprintf("limits %s %s", number(t.MaxTemperature), number(t.MaxHumidity)))
	type row struct {
		Quantity, Direction, Severity string
		Limit                         float64
		ForS                          float64 `json:"for_s"`
		ClearMargin                   float64 `json:"clear_margin"`
		ClearForS                     float64 `json:"clear_for_s"`
		RoomID                        int64   `json:"room_id"`
	}
	for _, r := range decode[[]row](w.system, w.token(a), "/api/v1/rules") {
		place := "everywhere"
		for _, one := range a.rooms {
			if one.id == r.RoomID {
				place = one.name
			}
		}
		lines = append(lines, fmt.Sprintf("rule %s %s %s for %g back by %s for %g %s %s",
			r.Quantity, r.Direction, number(r.Limit), r.ForS, number(r.ClearMargin), r.ClearForS, r.Severity, place))
	}
	return lines
}

func (w *world) excursionLines(a *account) (lines []string) {
	type row struct {
		SensorID                        string  `json:"sensor_id"`
		SensorName                      *string `json:"sensor_name"`
		Quantity, Direction, Resolution *string
		Limit                           *float64
		Start                           time.Time  `json:"start_time"`
		End                             *time.Time `json:"end_time"`
		Peak                            *float64
		PeakTime                        time.Time `json:"peak_time"`
	}
	for _, e := range decode[[]row](w.system, w.token(a), "/api/v1/excursions?limit=500&kind=threshold") {
		if a.blurred[e.SensorID] || e.SensorName == nil {
			continue
		}
		end := "lasts"
		if e.End != nil {
			end = short(*e.End) + " " + *e.Resolution
		}
		lines = append(lines, fmt.Sprintf("excursion %s %s %s %s from %s %s peak %s at %s",
			e.SensorID, *e.Quantity, *e.Direction, number(*e.Limit), short(e.Start), end, number(*e.Peak), short(e.PeakTime)))
	}
	for _, i := range decode[[]incidentAnswer](w.system, w.token(a), "/api/v1/incidents?limit=500") {
		if i.Cause == "silent" || i.Cause == "sensor" || !w.model.sharp(a, i.RoomID) {
			continue
		}
		w.checkTaken(a, i)
		end := "lasts"
		if i.End != nil {
			end = short(*i.End)
		}
		lines = append(lines, fmt.Sprintf("incident %s %s from %s %s breaking %t of %d", i.RoomName, i.Cause, short(i.Start), end, i.Breaking, i.Excursions))
	}
	w.checkSilences(a) // once what was due is told
	return lines
}

// What the API must answer, as lines; one that begins with ? may be missing.

func short(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (m *model) roomLines(a *account) (lines []string) {
	for _, r := range a.rooms {
		lines = append(lines, "room "+r.name)
	}
	for _, s := range a.sensors {
		lines = append(lines, fmt.Sprintf("sensor %s in %s", s.node, s.room.name))
	}
	return lines
}

// pending are the readings of a stream that detect has had and ingest has not: detect may have stored them.
func (m *model) readingLines(a *account, pending []*reading) (lines []string) {
	for _, s := range a.sensors {
		all := m.series(a, s)
		for _, r := range all {
			copied := slices.ContainsFunc(all, func(o reading) bool {
				return o.stream == r.stream && o.id == r.id && o.values == r.values && o.at.Before(r.at) && r.at.Sub(o.at) < copyRange
			})
			if !copied {
				lines = append(lines, fmt.Sprintf("reading %s %s %s %s", r.node, short(r.at), number(r.values[0]), number(r.values[1])))
			}
		}
		for _, r := range pending {
			if r.detected && !r.ingested && r.node == s.node && m.sees(a, s, r.stream, r.at) {
				lines = append(lines, fmt.Sprintf("?reading %s %s %s %s", r.node, short(r.at), number(r.values[0]), number(r.values[1])))
			}
		}
		if newest, ok := m.newestOf(a, s); ok {
			lines = append(lines, fmt.Sprintf("newest %s %s %s %s", s.node, short(newest.at), number(newest.values[0]), number(newest.values[1])))
		}
	}
	return lines
}

// newestOf is the newest reading of a sensor.
func (m *model) newestOf(a *account, s *sensor) (newest reading, ok bool) {
	for _, of := range []stream{{0, s.node}, {a.channel(), s.node}} {
		if r, stored := m.newest[of]; stored && m.sees(a, s, of, r.at) && (!ok || r.at.After(newest.at)) {
			newest, ok = r, true
		}
	}
	return newest, ok
}

func (m *model) alertLines(a *account) (lines []string) {
	for _, e := range m.alerts {
		if e.owner != a {
			continue
		}
		unit := [2]string{"°C", "%"}[e.quantity]
		lines = append(lines, fmt.Sprintf("alert %s %s %s High %s detected: %.1f%s (limit %.1f%s) acknowledged %t", e.reading.node, quantities[e.quantity],
			short(e.reading.at), quantities[e.quantity], e.reading.values[e.quantity], unit, e.limit, unit, e.known && !a.fuzzy))
	}
	return lines
}

func (m *model) ruleLines(a *account) (lines []string) {
	lines = append(lines, fmt.Sprintf("limits %s %s", number(a.limits[0]), number(a.limits[1])))
	for _, r := range append([]rule{
		{quantity: 0, limit: a.limits[0], severity: "critical"}, {quantity: 1, limit: a.limits[1], severity: "critical"},
	}, dereference(a.rules)...) {
		lines = append(lines, "rule "+r.String())
	}
	return lines
}

func (r rule) String() string {
	place := "everywhere"
	if r.room != nil {
		place = r.room.name
	}
	return fmt.Sprintf("%s %s %s for %g back by %s for %g %s %s", quantities[r.quantity], direction(r.below), number(r.limit), r.hold.Seconds(), number(r.margin),
		r.clearHold.Seconds(), r.severity, place)
}

func direction(below bool) string {
	if below {
		return "below"
	}
	return "above"
}

func (m *model) excursionLines(a *account) (lines []string) {
	for _, e := range m.all(a) {
		end := "lasts"
		if !e.lasting {
			end = short(e.end) + " " + e.resolution
		}
		lines = append(lines, fmt.Sprintf("excursion %s %s %s %s from %s %s peak %s at %s",
			e.node, quantities[e.rule.quantity], direction(e.rule.below), number(e.rule.limit), short(e.start), end, number(e.peak), short(e.peakAt)))
	}
	return lines
}

// incidentLines leave out the rooms with a blurred node, and those that are gone.
func (m *model) incidentLines(a *account) (lines []string) {
	for _, i := range m.incidents(a) {
		if m.sharp(a, i.room.id) {
			end := "lasts"
			if i.over(m.now) {
				end = short(i.end)
			}
			lines = append(lines, fmt.Sprintf("incident %s %s from %s %s breaking %t of %d", i.room.name, i.cause, short(i.start), end, i.breaking, i.parts))
		}
	}
	return lines
}

// sharp says that the incidents of a room are known: no node was ever blurred, for it may have been in any room.
func (m *model) sharp(a *account, id int64) bool {
	return len(a.blurred) == 0 && slices.ContainsFunc(a.rooms, func(r *room) bool { return r.id == id })
}

func dereference[T any](all []*T) []T {
	values := make([]T, len(all))
	for i, v := range all {
		values[i] = *v
	}
	return values
}

// differ compares what is answered with what must be, in any order.
func differ(want, got []string) string {
	var b strings.Builder
	optional := map[string]bool{}
	counts := map[string]int{}
	for _, line := range want {
		if rest, ok := strings.CutPrefix(line, "?"); ok {
			optional[rest] = true
			continue
		}
		counts[line]++
	}
	for _, line := range got {
		counts[line]--
	}
	keys := make([]string, 0, len(counts))
	for line, n := range counts {
		if n > 0 || n < 0 && !optional[line] {
			keys = append(keys, line)
		}
	}
	slices.Sort(keys)
	for _, line := range keys {
		sign := "missing"
		if counts[line] < 0 {
			sign = "wrong  "
		}
		fmt.Fprintf(&b, "  %s %s\n", sign, line)
	}
	return b.String()
}
