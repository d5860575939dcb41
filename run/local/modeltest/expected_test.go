package modeltest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// pending are the readings of a stream that detect has had and ingest has not: detect may
// have stored them.
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

// sharp says that the incidents of a room are known: no node was ever blurred, for it may
// have been in any room.
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
