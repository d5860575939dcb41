package maintenance_test

import (
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/must"
)

func in(t *testing.T, zone string) *time.Location {
	t.Helper()
	return must.Get(time.LoadLocation(zone))(t)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	daily := []time.Weekday{0, 1, 2, 3, 4, 5, 6}
	for name, c := range map[string]struct {
		window maintenance.Window
		want   string
	}{
		"once":                        {maintenance.Window{Start: start, Duration: time.Hour}, ""},
		"a week":                      {maintenance.Window{Start: start, Duration: 7 * 24 * time.Hour}, ""},
		"longer":                      {maintenance.Window{Start: start, Duration: 7*24*time.Hour + 1}, "duration_s must be more than 0"},
		"no duration":                 {maintenance.Window{Start: start}, "duration_s must be more than 0"},
		"no start":                    {maintenance.Window{Duration: time.Hour}, "start_time must lie"},
		"weekly":                      {maintenance.Window{Start: start, Duration: 24 * time.Hour, Weekdays: []time.Weekday{5}}, ""},
		"weekly, nearly a week":       {maintenance.Window{Start: start, Duration: 167 * time.Hour, Weekdays: []time.Weekday{5}}, ""},
		"weekly, a week":              {maintenance.Window{Start: start, Duration: 168 * time.Hour, Weekdays: []time.Weekday{5}}, "duration_s must end"},
		"daily, 23 h":                 {maintenance.Window{Start: start, Duration: 23 * time.Hour, Weekdays: daily}, ""},
		"daily, longer":               {maintenance.Window{Start: start, Duration: 23*time.Hour + 1, Weekdays: daily}, "duration_s must end"},
		"Saturday and Sunday, 23 h":   {maintenance.Window{Start: start, Duration: 23 * time.Hour, Weekdays: []time.Weekday{0, 6}}, ""},
		"Saturday and Sunday, longer": {maintenance.Window{Start: start, Duration: 24 * time.Hour, Weekdays: []time.Weekday{0, 6}}, "duration_s must end"},
		"a weekday of 7":              {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: []time.Weekday{7}}, "weekdays must"},
		"a weekday of -1":             {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: []time.Weekday{-1}}, "weekdays must"},
		"a weekday twice":             {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: []time.Weekday{1, 1}}, "weekdays must"},
		"before 2000":                 {maintenance.Window{Start: time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC), Duration: time.Hour}, "start_time must lie"},
		"from 2000":                   {maintenance.Window{Start: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Duration: time.Hour}, ""},
		"from 2100":                   {maintenance.Window{Start: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Duration: time.Hour}, "start_time must lie"},
		"until after 2100":            {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: daily, Until: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}, "until must be after"},
		"until its start":             {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: daily, Until: start}, "until must be after"},
		"once, until":                 {maintenance.Window{Start: start, Duration: time.Hour, Until: start.Add(1)}, "until needs weekdays"},
		"never":                       {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: []time.Weekday{6}, Until: start.Add(1)}, "until must come after"},
		"until later":                 {maintenance.Window{Start: start, Duration: time.Hour, Weekdays: daily, Until: start.Add(1)}, ""},
	} {
		got := c.window.Validate()
		if c.want == "" && got == nil {
			continue
		}
		must.Hold(t, len(got) == 1 && strings.HasPrefix(got[0].Field+" "+got[0].Message, c.want) && c.want != "",
			"%s: %v, want %q", name, got, c.want)
	}
}

func TestZone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Europe/Zurich", "America/Argentina/Buenos_Aires", "Etc/GMT+5"} {
		must.Equal(t, "zone", name, must.Get(maintenance.Zone(name))(t).String())
	}
	// Some machines know these, and others do not.
	for _, name := range []string{"", "Local", "localtime", "posixrules", "posix/Europe/Zurich", "right/UTC", "Atlantis/Capital", "Europe//Zurich", "Europe/./Zurich", "Europe/Zurich/", "../etc/passwd"} {
		must.Fail(t, name, must.Err(maintenance.Zone(name)), maintenance.ErrZone)
	}
}

// TestOneOccurrence is of a window without weekdays, and of one that recurs, does not begin with a second and ends
// with its first occurrence.
func TestOneOccurrence(t *testing.T) {
	t.Parallel()
	friday := time.Date(2026, 11, 20, 22, 0, 0, 500_000_000, in(t, "Europe/Zurich"))
	for _, w := range []maintenance.Window{
		{Start: time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC), Duration: time.Hour},
		{Start: friday, Duration: time.Hour, Weekdays: []time.Weekday{time.Friday}, Until: friday.Add(time.Hour)},
	} {
		must.Equal(t, "faults", 0, len(w.Validate()))
		for offset, want := range map[time.Duration]bool{-1: false, 0: true, time.Hour - 1: true, time.Hour: false} {
			_, end, inside := w.At(w.Start.Add(offset))
			must.Hold(t, inside == want && (end.Equal(w.Start.Add(time.Hour)) || !inside && w.Weekdays != nil),
				"%s after its start: %v, ends %s", offset, inside, end)
		}
		next, end, ok := w.Next(w.Start)
		must.Hold(t, ok && next.Equal(w.Start) && end.Equal(w.Start.Add(time.Hour)), "next from its start: %s, %s, %v", next, end, ok)
		_, _, ok = w.Next(w.Start.Add(1))
		must.Hold(t, !ok, "%+v happens again", w)
	}
}

// TestWeekly is a window each Saturday and Sunday from 23:00 to 02:00 in Berlin, over
// the night on which the clocks go back, and one over that on which they go forward.
func TestWeekly(t *testing.T) {
	t.Parallel()
	berlin := in(t, "Europe/Berlin")
	at := func(year int, month time.Month, day, hour, minute int) time.Time {
		return time.Date(year, month, day, hour, minute, 0, 0, berlin)
	}
	w := maintenance.Window{
		Start: at(2026, 10, 10, 23, 0), Duration: 3 * time.Hour, Weekdays: []time.Weekday{time.Saturday, time.Sunday}, Until: at(2027, 4, 1, 0, 0),
	}
	for _, c := range []struct {
		at   time.Time
		want bool
	}{
		{at(2026, 10, 4, 23, 30), false}, // before the first
		{at(2026, 10, 10, 22, 59), false},
		{at(2026, 10, 10, 23, 0), true},
		{at(2026, 10, 11, 1, 59), true}, // after midnight
		{at(2026, 10, 11, 2, 0), false},
		{at(2026, 10, 11, 23, 30), true}, // Sunday
		{at(2026, 10, 12, 1, 0), true},   // Monday morning belongs to Sunday's
		{at(2026, 10, 12, 23, 30), false},
		// 25 October 2026, 03:00: the clocks go back. 23:00 + 3 h is 02:00 summer time.
		{time.Date(2026, 10, 24, 21, 0, 0, 0, time.UTC), true},
		{time.Date(2026, 10, 24, 20, 59, 0, 0, time.UTC), false},
		{time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC), false},
		// That Sunday it begins at 23:00 winter time, 22:00 UTC.
		{time.Date(2026, 10, 25, 21, 30, 0, 0, time.UTC), false},
		{time.Date(2026, 10, 25, 22, 0, 0, 0, time.UTC), true},
		// 28 March 2027, 02:00: the clocks go forward.
		{time.Date(2027, 3, 27, 22, 0, 0, 0, time.UTC), true},
		{time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC), false},
		{time.Date(2027, 3, 28, 21, 0, 0, 0, time.UTC), true},
		{at(2027, 4, 3, 23, 30), false}, // after the last
	} {
		_, _, inside := w.At(c.at.UTC())
		must.Hold(t, inside == c.want, "%s: inside %v", c.at, inside)
	}
	for from, want := range map[time.Time]time.Time{
		at(2026, 1, 1, 0, 0):    at(2026, 10, 10, 23, 0),
		at(2026, 10, 10, 23, 0): at(2026, 10, 10, 23, 0),
		at(2026, 10, 10, 23, 1): at(2026, 10, 11, 23, 0),
		at(2026, 10, 11, 23, 1): at(2026, 10, 17, 23, 0),
	} {
		if next, end, ok := w.Next(from); !ok || !next.Equal(want) || end.Sub(next) != w.Duration {
			t.Errorf("next from %s: %s to %s, %v", from, next, end, ok)
		}
	}
	next, _, ok := w.Next(at(2027, 3, 29, 0, 0))
	must.Hold(t, !ok, "after the last comes %s", next)
}

// TestByClocks has the nights on which clocks show a time twice or skip it, in zones of which [time.Date]
// takes the first and the second, before and after; half an hour, and a whole day.
func TestByClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, clocks, want string
		shown              bool
	}{
		{"Europe/Vienna", "2026-10-25 02:30", "2026-10-25 00:30", true},
		{"America/New_York", "2026-11-01 01:30", "2026-11-01 05:30", true},
		{"Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04 14:45", true},
		{"Europe/Vienna", "2027-03-28 02:30", "2027-03-28 01:30", false},
		{"America/New_York", "2027-03-14 02:30", "2027-03-14 07:30", false},
		{"Australia/Lord_Howe", "2026-10-04 02:10", "2026-10-03 15:40", false},
		{"Pacific/Apia", "2011-12-30 12:00", "2011-12-30 22:00", false},
		{"Europe/Vienna", "2026-10-25 03:30", "2026-10-25 02:30", true}, // the clocks changed hours before
		{"Europe/Vienna", "2027-03-28 12:00", "2027-03-28 10:00", true},
		{"Pacific/Apia", "2011-12-31 12:00", "2011-12-30 22:00", true},
		{"Asia/Kathmandu", "2028-02-29 00:00", "2028-02-28 18:15", true},
	} {
		clocks := must.Get(time.Parse("2006-01-02 15:04", c.clocks))(t)
		got, shown := maintenance.ByClocks(clocks, in(t, c.zone))
		must.Hold(t, got.UTC().Format("2006-01-02 15:04") == c.want && shown == c.shown,
			"%s in %s: %s, shown %v", c.clocks, c.zone, got.UTC(), shown)
	}
}

// TestLongestWindow is a week's window of a zone whose day is another than UTC's.
func TestLongestWindow(t *testing.T) {
	t.Parallel()
	kiritimati := in(t, "Pacific/Kiritimati") // UTC+14
	start := time.Date(2026, 11, 18, 6, 0, 0, 0, kiritimati)
	w := maintenance.Window{Start: start, Duration: 166 * time.Hour, Weekdays: []time.Weekday{time.Wednesday}}
	must.Equal(t, "faults", 0, len(w.Validate()))
	for hours := range 400 {
		at := start.Add(time.Duration(hours) * time.Hour)
		want := hours%168 < 166
		if begin, _, inside := w.At(at.UTC()); inside != want || (inside && !begin.Equal(start.Add(time.Duration(hours/168*168)*time.Hour))) {
			t.Errorf("%d hours after its start: %v, began %s", hours, inside, begin)
		}
	}
	next, _, ok := w.Next(start.Add(time.Minute).UTC())
	must.Hold(t, ok && next.Equal(start.AddDate(0, 0, 7)), "next %s", next)
}
