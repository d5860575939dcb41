// Package maintenance is the domain of maintenance windows: the times in which a
// customer expects values to be out of their limits. Excursions inside a window are recorded
// as always and shown as silenced; whether a time lies inside is computed on request.
package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
	_ "time/tzdata" // for machines that have no time zones of their own

	"coldaisle.dev/shared/reading"
)

// MaxDuration is the longest window: a week. For a longer time, change the rules.
const MaxDuration = 7 * 24 * time.Hour

// Window is one maintenance window, once or every week.
type Window struct {
	// Start and Duration are those of the only occurrence, or of the first one. Start
	// has the window's time zone: a recurring window starts at the same time of day on
	// the zone's clocks, summer and winter.
	Start    time.Time
	Duration time.Duration

	// Weekdays are the days on which it recurs, in the window's zone; none means
	// that it happens once.
	Weekdays []time.Weekday
	// Until is when it stops recurring; an occurrence that has begun by then is
	// finished. Zero means never.
	Until time.Time
}

// A Problem is a rule that a window breaks, with the API's name of the field.
type Problem struct{ Field, Message string }

// Validate returns a problem for each invalid field.
func (w Window) Validate() (problems []Problem) {
	report := func(field, message string) { problems = append(problems, Problem{field, message}) }
	if !reading.InCalendar(w.Start) {
		report("start_time", "must lie between the years 2000 and 2100")
	}
	if w.Duration <= 0 || w.Duration > MaxDuration {
		report("duration_s", "must be more than 0 and at most seven days")
	}
	seen := map[time.Weekday]bool{}
	for _, day := range w.Weekdays {
		if day < time.Sunday || day > time.Saturday || seen[day] {
			report("weekdays", "must be 0 (Sunday) to 6 (Saturday), each at most once")
		}
		seen[day] = true
	}
	if !w.Until.IsZero() && (!w.Until.After(w.Start) || !reading.InCalendar(w.Until)) {
		report("until", "must be after start_time and before the year 2100")
	}
	if !w.Until.IsZero() && len(w.Weekdays) == 0 {
		report("until", "needs weekdays")
	}
	if len(problems) > 0 || len(w.Weekdays) == 0 {
		return problems
	}
	if w.Duration > w.shortestPause() {
		report("duration_s", "must end before the next occurrence begins")
	}
	if _, _, occurs := w.Next(w.Start); !occurs {
		report("until", "must come after the first occurrence")
	}
	return problems
}

// ErrZone marks a name that is no time zone of the IANA database.
var ErrZone = errors.New("no time zone of the IANA database")

// Zone returns a time zone by its IANA name. It refuses names that only some
// machines know, such as posix/Europe/Zurich, those of the machine's own zone, and other
// spellings of a path, such as Europe//Zurich.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" || name[0] < 'A' || name[0] > 'Z' || !fs.ValidPath(name) { // localtime, posixrules, right/…
		return nil, fmt.Errorf("%w: %q", ErrZone, name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrZone, err)
	}
	return zone, nil
}

// ByClocks returns when the clocks of a zone show what those of UTC show at a time, and whether they do.
// [time.Date] does not say which time it returns when they show it twice or never: here it is the first,
// or, in place of one that they skip, the one by the offset before (RFC 5545, 3.3.5).
func ByClocks(utc time.Time, zone *time.Location) (t time.Time, shown bool) {
	shows := func(t time.Time) bool {
		_, offset := t.Zone()
		return t.Add(time.Duration(offset) * time.Second).Equal(utc)
	}
	_, offset := utc.Add(-26 * time.Hour).In(zone).Zone() // offsets are less than a day
	t = utc.Add(-time.Duration(offset) * time.Second).In(zone)
	either := time.Date(utc.Year(), utc.Month(), utc.Day(), utc.Hour(), utc.Minute(), utc.Second(), utc.Nanosecond(), zone)
	if !shows(t) && shows(either) {
		return either, true
	}
	return t, shows(t)
}

// shortestPause is the shortest time between the starts of two occurrences, less an hour
// for the night on which the clocks go forward.
func (w Window) shortestPause() time.Duration {
	days := slices.Sorted(slices.Values(w.Weekdays))
	shortest := 7
	for i, day := range days {
		next := days[(i+1)%len(days)]
		shortest = min(shortest, cmp.Or((int(next)-int(day)+7)%7, 7))
	}
	return time.Duration(shortest)*24*time.Hour - time.Hour
}

// At returns the occurrence that a time lies in. Its start belongs to it, its end does not.
func (w Window) At(t time.Time) (start, end time.Time, inside bool) {
	if len(w.Weekdays) == 0 {
		end = w.Start.Add(w.Duration)
		return w.Start, end, !t.Before(w.Start) && t.Before(end)
	}
	// The occurrence began at most Duration ago, which is at most eight calendar days.
	for back := range int(MaxDuration/(24*time.Hour)) + 2 {
		start, occurs := w.on(t, -back)
		if !occurs || start.After(t) {
			continue
		}
		end := start.Add(w.Duration)
		return start, end, t.Before(end)
	}
	return time.Time{}, time.Time{}, false
}

// Next returns the first occurrence that begins at or after a time, and false when
// there is none.
func (w Window) Next(t time.Time) (start, end time.Time, ok bool) {
	if len(w.Weekdays) == 0 {
		return w.Start, w.Start.Add(w.Duration), !w.Start.Before(t)
	}
	if t.Before(w.Start) {
		t = w.Start
	}
	for ahead := range 9 { // at least one day of the week, from the day of t in any zone
		start, occurs := w.on(t, ahead)
		if occurs && !start.Before(t) {
			return start, start.Add(w.Duration), true
		}
	}
	return time.Time{}, time.Time{}, false
}

// Over reports whether no occurrence is under way at a time, and none comes.
func (w Window) Over(t time.Time) bool {
	_, _, inside := w.At(t)
	_, _, comes := w.Next(t)
	return !inside && !comes
}

// on returns when the window starts on the day that is days after that of t in the window's
// zone, and whether it starts on that day at all.
func (w Window) on(t time.Time, days int) (time.Time, bool) {
	zone := w.Start.Location()
	year, month, day := t.In(zone).Date()
	hour, minute, second := w.Start.Clock()
	start, _ := ByClocks(time.Date(year, month, day+days, hour, minute, second, w.Start.Nanosecond(), time.UTC), zone)
	noon := time.Date(year, month, day+days, 12, 0, 0, 0, time.UTC)
	occurs := slices.Contains(w.Weekdays, noon.Weekday()) && !start.Before(w.Start) && (w.Until.IsZero() || start.Before(w.Until))
	return start, occurs
}
