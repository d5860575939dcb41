package anomaly

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/reading"
)

// The cooling path judges the changes of a room's air in degrees, against the largest that
// the same place had before, and not by how rare they are or what the neighbours do.

// spans are the times, in seconds, over which changes are measured.
func spans() [4]float64 { return [4]float64{300, 600, 1200, 2400} }

// Moves are the signed changes of a temperature within each of the spans, and the temperature
// now, in °C; NaN if unknown.
type Moves struct {
	Change [4]float32
	Level  float32
	Since  float32 // s that the rare readings of a change are apart; 0 where none are rare
}

func noMoves() Moves {
	nan := float32(math.NaN())
	return Moves{[4]float32{nan, nan, nan, nan}, nan, 0}
}

// comesBack bounds, in °C, the part of a change that leads back to the median of the day.
const comesBack = 2.0

// MovesOf measures the changes of a node up to a reading, by the window before it. If neither the window nor
// the day has a reading that is old enough, the change over a shorter time counts. Both ends are medians of
// three readings. Of a change back to the usual temperature, the median of the day, at most comesBack counts.
func MovesOf(w reading.Window, r reading.Reading, day *Day, usual float64) Moves {
	m := noMoves()
	w = w.With(w.Temperature)
	n := w.Len()
	now := smooth(w.Age, w.Temperature, r.Temperature)
	m.Level = float32(now)
	i := n
	for k, span := range spans() {
		for i > 0 && w.Age[i-1] <= span+features.MaxInterpolationGap/2 {
			i--
		}
		at := i
		switch {
		case at > 0 && (at == n || w.Age[at] < span/2) && w.Age[at-1] <= 2*span:
			at-- // readings are rare: the one before is nearer to the span
			m.Since = float32(w.Age[at])
		case at == n || (at > 0 && w.Age[at] < span/2):
			continue
		}
		then := w.Temperature[at]
		if at := max(1, at); at+1 < n && w.Age[at-1]-w.Age[at+1] <= span/4 {
			then = median3(w.Temperature[at-1], w.Temperature[at], w.Temperature[at+1])
		}
		if at == 0 && w.Age[0] < span*3/4 { // the window of a message may be short
			if slot := day.At(SlotOf(r.Time) - int64(span/SlotWidth.Seconds())); !math.IsNaN(slot.Temperature) {
				then = slot.Temperature
			}
		}
		m.Change[k] = float32(departed(now-then, now-usual+math.Copysign(comesBack, now-then)))
	}
	return m
}

// movesAt is small, because an instance has those of 100,000 nodes.
type movesAt struct {
	Moves

	at uint32 // s since 1970; 0 for none
}

// known is the state that a node's own readings have given.
type known struct {
	moves [2]movesAt // up to the newest reading, and up to the last one that came after a newer: a backlog hides nothing of now

	noticedAt time.Time // when the cooling path last reported
	times     int32     // how often it began to within a day
	last      uint8     // which of moves is that of the last reading, or unmoved
	largest   float64   // °C, the largest of these
	ledAt     time.Time // when a change was last reported
	led       float64   // its sign
	from      float64   // °C, where it began

	instrument Instrument
	reported   int64 // slot in which instrument was found
	digitsOn   int64 // day since 1970 on which its digits were new
	otherwise  bool  // its interval has differed from the calibration's for a window
}

// unmoved is for a last reading without temperature, which the cooling path does not judge.
const unmoved = 2

// Move records the changes up to a reading and returns them. A reading without temperature has none,
// and leaves those of the one before.
func (l *Live) Move(w reading.Window, r reading.Reading) Moves {
	if !reading.Has(r.Temperature) {
		l.last = unmoved
		return noMoves()
	}
	m := MovesOf(w, r, &l.Day, l.ofDay(r.Time).Temperature)
	if grid := l.instrument.Grid; grid >= coarse { // one digit is not a change
		for k, v := range m.Change {
			m.Change[k] = max(0, v-grid) + min(0, v+grid)
		}
	}
	at := uint32(r.Time.Unix()) //nolint:gosec // until 2106
	l.last = 0
	if at < l.moves[0].at {
		l.last = 1
	}
	l.moves[l.last] = movesAt{m, at}
	return m
}

// movesNear returns the changes up to a reading about a time, if there was one.
func (l *Live) movesNear(at time.Time) (Moves, bool) {
	for _, m := range l.moves {
		if heardAt(time.Unix(int64(m.at), 0), at) {
			return m.Moves, true
		}
	}
	return Moves{}, false
}

// heardAt reports whether a time at which a node was heard, if it was, is about another.
func heardAt(heard, at time.Time) bool { return at.Sub(heard).Abs().Seconds() <= held }

// Apart returns a node's changes less those of most of its room, where these are known.
func (m Moves) Apart(together Moves) Moves {
	for k, v := range together.Change {
		if !math.IsNaN(float64(v)) {
			m.Change[k] -= v
		}
	}
	return m
}

// Follow copies the changes and the instrument of an earlier state of the same node.
func (l *Live) Follow(before *Live) { l.known = before.known }

// Together returns the median change of a room's nodes: of an even number the smaller of the two
// in the middle. Nodes that were not heard for five minutes do not count. Fewer than three nodes
// are each judged alone. heard is the number of nodes whose changes are known.
func Together(at time.Time, nodes []*Live) (m Moves, heard int) {
	var values [6][]float32
	all := make([]float32, len(values)*len(nodes))
	for k := range values {
		values[k] = all[k*len(nodes) : k*len(nodes) : (k+1)*len(nodes)]
	}
	alive := 0
	for _, n := range nodes {
		moves, moved := n.movesNear(at)
		if moved || heardAt(n.Heard, at) && !math.IsNaN(n.Now.Temperature) {
			alive++
		}
		if !moved {
			continue
		}
		heard++
		for k, v := range moves.Change {
			values[k] = append(values[k], v)
		}
		values[4] = append(values[4], moves.Level)
		values[5] = append(values[5], moves.Since)
	}
	middle := func(v []float32) float32 {
		v = slices.DeleteFunc(v, func(v float32) bool { return math.IsNaN(float64(v)) })
		if len(v) < leastOfRoom || 2*len(v) < alive {
			return float32(math.NaN())
		}
		slices.Sort(v)
		low, high := v[(len(v)-1)/2], v[len(v)/2]
		if math.Abs(float64(low)) < math.Abs(float64(high)) {
			return low
		}
		return high
	}
	for k := range m.Change {
		m.Change[k] = middle(values[k])
	}
	m.Level, m.Since = middle(values[4]), middle(values[5])
	return m, heard
}

// leastOfRoom is the fewest nodes that are judged together.
const leastOfRoom = 3

// Climate summarises the temperature of a node or a room in an hour; NaN if unknown.
type Climate struct {
	Start          time.Time
	Rise, Fall     [4]float32 // largest within each span, °C, both positive
	Mean           float32    // °C; 0 of no readings
	Warmest, Least float32    // °C
	Count          int32      // of readings in the mean
}

// Unheard is an hour in which nothing was heard.
func Unheard(start time.Time) Climate {
	m := noMoves()
	return Climate{Start: start, Rise: m.Change, Fall: m.Change, Warmest: m.Level, Least: m.Level}
}

// Add includes the changes up to a reading.
func (c *Climate) Add(m Moves) {
	for k, v := range m.Change {
		c.Rise[k], c.Fall[k] = larger(c.Rise[k], v), larger(c.Fall[k], -v)
	}
	if !math.IsNaN(float64(m.Level)) {
		c.Warmest, c.Least = larger(c.Warmest, m.Level), -larger(-c.Least, -m.Level)
		c.Count++
		c.Mean += (m.Level - c.Mean) / float32(c.Count)
	}
}

// limits are the largest usual changes of a node's or a room's air, in °C: larger ones are reported.
type limits struct {
	Change [8]float32 // rises within each span, then falls, at any hour
	Level  [2]float32 // coldest and warmest
	// Slow is how much hotter it is than its past (negative: colder; 0: neither), the day since
	// 1970 on which that began, and the sum of peaks, if only those of the days are hotter, and month, if
	// four weeks are known.
	Slow  [3]float32
	Hour  [2][24]uint8 // the share of Change, in 255ths, at an hour of the day and its neighbours
	First float32      // the share of firstChanges that is the least limit
}

const (
	// A change must be larger than ever before by the factor beyondPast, at a node beyondNode.
	beyondPast, beyondNode = 1.2, 1.4
	// beyondFall is a further factor for a fall, because lost cooling causes a rise.
	beyondFall = 1.3
	// firstHours is the time, in hours, in which firstChanges narrow from three times their size: every
	// place looks restless on its first morning.
	firstHours = 48
	// firstOfADay is limits.First of a place of which 24 hours are known.
	firstOfADay = (1 - 24.0/hoursOfWeek) * (1 + 2*(1-24.0/firstHours))
	// leastRise is the smallest change that is reported, °C: less is no failure of a cooling.
	leastRise = 1.5
	// warmer is how much warmer or colder than ever before a place must be, °C, once a week of past
	// is known: a weekend is unlike working days.
	warmer = 1.5
	// repeating is the change, °C, that is not learned after it was reported: a person must say that
	// it is expected. In the first week everything is learned.
	repeating = 3.0
	unbounded = 1000
)

// firstChanges are, for each span, the changes that no calm room has while it is healthy, °C.
func firstChanges() [4]float32 { return [4]float32{1.5, 2.5, 4, 6} }

// limitsOf returns the limits of a place by its past in the order of time: beyond times the largest changes, at
// quiet hours of the day less, but for the part doubt. Until a week is known, firstChanges count for the rest.
func limitsOf(past []Climate, beyond, doubt float32) limits {
	var largest [8]float32 // rises, and falls
	var at [24][8]float32  // at an hour of the day and its neighbours
	warmest, coldest := float32(math.Inf(-1)), float32(math.Inf(1))
	hours, today, learned := 0, int64(0), false
	before := largest // until today
	for _, c := range past {
		if day := c.Start.Unix() / 86400; day != today {
			today, before, learned = day, largest, hours >= hoursOfWeek
		}
		if c.Count == 0 {
			continue
		}
		hours++
		told, changes := false, slices.Concat(c.Rise[:], c.Fall[:])
		for k, v := range changes {
			told = told || learned && v > max(repeating, beyond*before[k])
		}
		if told {
			continue
		}
		for k, v := range changes {
			largest[k] = larger(largest[k], v)
			for beside := range 3 {
				h := (c.Start.UTC().Hour() + 23 + beside) % 24
				at[h][k] = larger(at[h][k], v)
			}
		}
		warmest, coldest = larger(warmest, c.Warmest), -larger(-coldest, -c.Least)
	}
	known := min(1, float32(hours)/hoursOfWeek)
	l := limits{First: (1 - known) * (1 + 2*max(0, 1-float32(hours)/firstHours)), Level: [2]float32{-unbounded, unbounded}}
	for k, most := range largest {
		l.Change[k] = (1 + (1-known)/6) * beyond * most
		for h := range at {
			part := at[h][k] / most
			part += (1 - part) * doubt
			if way := k / 4; part > 0 {
				l.Hour[way][h] = max(l.Hour[way][h], uint8(math.Ceil(255*float64(part))))
			}
		}
	}
	if known == 1 {
		l.Level = [2]float32{coldest - warmer, warmest + warmer}
	}
	return l
}

// change is the largest rise (way 0) or fall (1) within a span at an hour of the day.
func (l *limits) change(way, span, hour int) float32 {
	most := max(leastRise, l.Change[4*way+span]*float32(l.Hour[way][hour])/255, l.First*firstChanges()[span])
	return most * [2]float32{1, beyondFall}[way]
}

// The CUSUM over days (Page, Biometrika 41, 1954).
const (
	cusumSlack = 1.0 // spreads a day that do not count
	cusumLimit = 8.0 // spreads
	// roomSpread and nodeSpread are the least spreads, °C: of a room's days, and of a node's
	// difference from its room.
	roomSpread, nodeSpread = 0.5, 0.15
	heardHours             = 12 // a day counts with at least this many hours
	missedHours            = 6  // a day with so many fewer than most of a week is not judged: half of one is no whole
	beyondDays             = 4  // least spreads by which a day must lie beyond all days before, or rise
	steepDays              = 3  // a steep rise is one within so many days
	outlier                = 4  // spreads; a day before that lies further away counts as if it did not
	leastDays              = 5  // a day is compared with at least this many like it
	monthDays              = 27 // from the first known day of a past of four weeks to the last
	peaks, month           = 1, 4
)

// heardDay is a day of a place.
type heardDay struct {
	number int64      // since 1970
	heard  float64    // hours
	values [3]float64 // median, maximum and minimum of the hourly means, °C
	mean   float64
}

// daysOf returns the days of a past that were heard for half of their hours, up to the last that is
// judged; the hours with which a day is; and the usual mean, °C.
func daysOf(past []Climate) (days []heardDay, least, usual float64) {
	var heard, means []float64
	for i := 0; i < len(past); {
		number := past[i].Start.Unix() / 86400
		var hours []float64
		for ; i < len(past) && past[i].Start.Unix()/86400 == number; i++ {
			if past[i].Count > 0 {
				hours = append(hours, float64(past[i].Mean))
			}
		}
		if n := len(hours); n >= heardHours {
			slices.Sort(hours)
			d := heardDay{number, float64(min(n, 24)), [3]float64{features.Quantile(hours, 0.5), hours[n-1], hours[0]}, 0}
			for _, mean := range hours {
				d.mean += mean / float64(n)
			}
			days, heard, means = append(days, d), append(heard, d.heard), append(means, d.mean)
		}
	}
	least = median(heard[max(0, len(heard)-7):], 1) - missedHours
	for len(days) > 0 && days[len(days)-1].heard < least { // what was told the day before stands
		days = days[:len(days)-1]
	}
	return days, least, median(means, 1)
}

// slow compares each day's median, maximum and minimum of the hourly means with the days before
// the last seven or, with less than two weeks, before the last third, so that a change of this
// week does not count as usual. Working days are compared with working days if there are two.
func (l *limits) slow(past []Climate, spread float64) {
	days, least, usual := daysOf(past)
	recent := min(7, len(days)/3)
	before, since := days[:len(days)-recent], days[len(days)-recent:]
	free := func(d heardDay) bool { return (d.number+4)%7 == 0 || (d.number+4)%7 == 6 } // 1970-01-01 was a Thursday
	for k := range 3 {
		var sum [2]float64 // up, down
		var began [2]int64
		for i, d := range since {
			var values []float64
			for _, b := range before {
				if free(b) == free(d) {
					values = append(values, b.values[k])
				}
			}
			if len(values) < leastDays || d.heard < least {
				continue
			}
			coldest, middle, warmest := slices.Min(values), features.Quantile(values, 0.5), slices.Max(values)
			for i, v := range values {
				values[i] = math.Abs(v - middle)
			}
			scale := max(spread, 1.4826*median(values, 1))
			beyond := [2]float64{min(warmest, middle+outlier*scale), min(-coldest, -middle+outlier*scale)}
			by := d.values[k] - middle
			for w, way := range [2]float64{1, -1} {
				if sum[w] == 0 {
					began[w] = d.number
				}
				sum[w] = max(0, sum[w]+way*by/scale-cusumSlack)
				if l.Slow[0] == 0 && i == len(since)-1 && sum[w] > cusumLimit && way*d.values[k] > beyond[w]+beyondDays*spread {
					l.Slow = [3]float32{float32(by), float32(began[w]), 0}
					if k == 1 && way > 0 {
						l.Slow[2] = peaks
					}
					if d.number-days[0].number >= monthDays {
						l.Slow[2] += month
					}
				}
			}
		}
	}
	l.steep(days, least, usual, spread)
}

// steep compares a rise within three days with earlier ones, if slow has found nothing: where weeks differ,
// that takes days longer.
func (l *limits) steep(days []heardDay, least, usual, spread float64) {
	last := len(days) - 1
	for span := 1; span <= steepDays && last >= 3*7 && l.Slow[0] == 0; span++ {
		most := beyondDays * spread
		for i := span; i <= last-span; i++ {
			most = max(most, days[i].mean-days[i-span].mean)
		}
		from, to := days[last-span], days[last]
		whole := to.number-from.number == int64(span) && min(to.heard, from.heard) >= least
		if by := to.mean - from.mean; whole && departed(by, to.mean-usual+comesBack) > most {
			l.Slow = [3]float32{float32(by), float32(from.number + 1), 0}
		}
	}
}

// CoolingScore is the score of a report of the cooling path: above any alarm.
const CoolingScore = 6.0

// Notice is the cooling path's report on a reading.
type Notice struct {
	Cause     string  // for programs
	Reason    string  // for a person
	Value     float64 // °C, of the node
	Low, High float64 // °C, the usual band
}

// Cooling is [Calibration.Cooling] of a node after [Live.Move]. From the third time in a day on, [Joined] or
// more apart, a change must be larger than before, or 3 °C, so that a cycling compressor does not flood people.
// Within half a day, the way back from a reported change counts only beyond where that began.
func (l *Live) Cooling(c *Calibration, node, room string, at time.Time, together Moves, heard int) (Notice, bool) {
	if l.last == unmoved {
		return Notice{}, false
	}
	own := l.moves[l.last].Moves
	for k, v := range own.Change {
		if at.Sub(l.ledAt).Abs() <= 12*time.Hour && float64(v)*l.led < 0 {
			own.Change[k] = float32(departed(float64(v), float64(own.Level)-l.from))
		}
	}
	notice, ok := c.Cooling(node, room, at, own, together, heard)
	if !ok {
		return notice, false
	}
	since := at.Sub(l.noticedAt).Abs()
	from := (notice.Low + notice.High) / 2
	size := math.Abs(notice.Value - from)
	switch {
	case since < Joined:
	case since > 24*time.Hour:
		l.times, l.largest = 1, 0
	case l.times >= 2 && size < min(repeating, beyondPast*l.largest):
		return Notice{}, false
	default:
		l.times++
	}
	l.noticedAt, l.largest = at, max(l.largest, size)
	if notice.Cause == "cooling" || notice.Cause == "temperature_change" {
		led, usual := math.Copysign(1, notice.Value-from), l.ofDay(at).Temperature
		if led < 0 && !math.IsNaN(usual) || usual < from { // a rise never begins above the usual temperature
			from = usual
		}
		if led != l.led || at.Sub(l.ledAt).Abs() >= Joined {
			l.led, l.from = led, from
		}
		l.ledAt = at
	}
	return notice, true
}

// Cooling judges the changes of a node and of its room at a time; it reports false if they are
// usual for the place. A change of the room is reported for each node that takes part in it.
func (c *Calibration) Cooling(node, room string, at time.Time, own, together Moves, heard int) (Notice, bool) {
	places := [2]struct {
		m Moves
		l limits
	}{{together, c.room(room).Air}, {own.Apart(together), c.of(node, "").Air}} // an unknown node's are the fleet's
	level := float64(own.Level)
	notice := func(cause string, by, usual float32, reason string) (Notice, bool) {
		usual = min(usual, larger(by, -by)/2)
		return Notice{cause, reason, level, level - float64(by+usual), level - float64(by-usual)}, true
	}
	for k, span := range spans() {
		for i := range places {
			by, way, verb := places[i].m.Change[k], 0, "rose"
			if by < 0 {
				way, verb = 1, "fell"
			}
			limit := places[i].l.change(way, k, at.UTC().Hour())
			if room := places[0].l; i == 1 && room.First == 0 && math.IsNaN(float64(together.Change[k])) {
				limit = max(limit, room.change(way, k, at.UTC().Hour())) // its node may do what an unknown room does
			}
			size, part := larger(by, -by), own.Change[k]
			if !(size > limit) || !(part*by > 0) || 2*larger(part, -part) < limit {
				continue
			}
			who, more, cause := "temperature", "", "temperature_change"
			if i == 0 {
				who, cause = fmt.Sprintf("the room's temperature (%d sensors)", heard), "cooling"
			} else if !math.IsNaN(float64(together.Change[k])) {
				more = " more than the room"
			}
			if since := float64(places[i].m.Since); since <= 2*span {
				span = max(span, since)
			}
			return notice(cause, part, limit, fmt.Sprintf("%s %s %.1f °C%s in %.0f min; it usually stays within %.1f °C at this hour",
				who, verb, size, more, span/60, limit))
		}
	}
	for i, who := range [2]string{"the room", "it"} { // of a room whose other nodes are silent or new, each is as ever
		m, l := places[i].m, places[i].l
		if by := m.Level - l.Level[1] + warmer; by > warmer && own.Level > places[1].l.Level[1]-warmer {
			return notice("warmest", by, warmer, fmt.Sprintf("%s is %.1f °C warmer than ever in the weeks before", who, by))
		}
		if by := l.Level[0] - m.Level + warmer; by > warmer && own.Level < places[1].l.Level[0]+warmer {
			return notice("coldest", -by, warmer, fmt.Sprintf("%s is %.1f °C colder than ever in the weeks before", who, by))
		}
	}
	than := [2]string{"the room is %.1f °C %s than before", "%.1f °C %s than before, compared with its room's other sensors"}
	if heard < leastOfRoom {
		than[1] = "it is %.1f °C %s than before"
	}
	for i, than := range than {
		by, both := places[i].l.Slow, places[0].l.Slow[0]+places[1].l.Slow[0]
		if by[0] == 0 || math.IsNaN(level) || larger(both, -both) < roomSpread { // both: only those that are heard have changed
			continue
		}
		way := "hotter"
		if by[0] < 0 {
			way = "colder"
		}
		reason := fmt.Sprintf(than+", since %s", larger(by[0], -by[0]), way, time.Unix(int64(by[1])*86400, 0).UTC().Format("Monday 2 January"))
		if int(by[2])&month != 0 {
			reason = strings.Replace(reason, "before, since", "its last month, since", 1)
		}
		if int(by[2])&peaks != 0 {
			reason += ", at its peaks: cooling no longer keeps up"
		}
		return notice("slow_change", by[0], larger(by[0], -by[0]), reason)
	}
	return Notice{}, false
}
