// Package watch wakes people. It is the customer's own program on the customer's machine: it
// follows the account's incidents through the API and notifies people by the steps of watch.yaml.
//
// Messages are on disk, with the cursor of the log, before they are sent, and leave the disk only
// after that has succeeded: each is sent at least once, whenever the program is killed.
package watch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
)

// Config is watch.yaml.
type Config struct {
	Name    string `yaml:"name"`     // of this watch, in messages
	API     string `yaml:"api"`      // address of the API
	KeyFile string `yaml:"key_file"` // holds the API key
	State   string `yaml:"state"`    // folder of the journal
	Gateway string `yaml:"gateway"`  // unix socket of this machine's gateway; without one nothing is judged on site
	Steps   []Step `yaml:"steps"`

	Shutdowns []Shutdown `yaml:"shutdowns"`

	key     string
	environ []string // for commands
}

// Step notifies people of some incidents in one way.
type Step struct {
	Name     string            `yaml:"name"`
	Rooms    []string          `yaml:"rooms"`  // names or ids; none: all
	Causes   []incident.Cause  `yaml:"causes"` // none: all
	Severity incident.Severity `yaml:"severity"`
	Hours    []string          `yaml:"hours"` // "Mon-Fri 08:00-18:00"; none: always
	Zone     string            `yaml:"zone"`  // of the hours, and of times in messages; none: the host's
	After    time.Duration     `yaml:"after"` // delay, within which taking or end of the incident withdraws the message
	URL      string            `yaml:"url"`   // of a notification service
	URLFile  string            `yaml:"url_file"`
	Command  []string          `yaml:"command"` // argument list, no shell
	Timeout  time.Duration     `yaml:"timeout"`
	AtMost   *int              `yaml:"at_most"` // messages an hour, the rest in a digest

	hours   []hours
	zone    *time.Location
	page    string // address of an incident's page, without the id
	rooms   []int64
	environ []string // for its command
	at      int      // its place in the file
}

// hours is a span of the day, in minutes, on some days of the week.
type hours struct {
	days     [7]bool
	from, to int
}

func causes() []incident.Cause {
	return []incident.Cause{
		incident.TooHot, incident.TooCold, incident.TooHumid, incident.TooDry, incident.Silent, incident.Faulty, incident.Unusual,
	}
}

const (
	defaultState   = "/var/lib/monitor-gateway-watch"
	defaultTimeout = 30 * time.Second
	maxTimeout     = time.Hour
	defaultAtMost  = 30
	maxAfter       = 24 * time.Hour
	minAbove       = 25.0 // °C

	defaultStageTimeout = 5 * time.Minute
)

// Load reads and checks a configuration. Each problem names its setting, in a list by numbers
// from 1. Of environ, commands get only PATH and HOME.
func Load(path string, environ []string) (*Config, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the operator's
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: monitor-gateway watch init writes a first one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var c Config
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.environ = slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		return !strings.HasPrefix(variable, "PATH=") && !strings.HasPrefix(variable, "HOME=")
	})
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	c.splitSteps()
	return &c, nil
}

// splitSteps turns each recipient into a step, so that an address that fails neither delays messages
// to the others nor repeats them.
func (c *Config) splitSteps() {
	var steps []Step
	for i, s := range c.Steps {
		name := s.Name
		s.at = i
		for n, to := range destinations(s.URL, telegramAPI) {
			if s.URL = to; n > 0 {
				s.Name = fmt.Sprintf("%s, recipient %d", name, n+1)
			}
			steps = append(steps, s)
		}
	}
	c.Steps = steps
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, rule string, path ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s", setting(path), rule))
		}
	}
	c.State = cmp.Or(c.State, defaultState)
	c.Name = cmp.Or(c.Name, "watch")
	check(isAddress(c.API), "must be the address of the API, https://…", "api")
	var err error
	c.key, err = secret(c.KeyFile)
	check(err == nil, fmt.Sprint(err), "key_file")
	check(len(c.Steps) > 0, "must have at least one step", "steps")
	names := map[string]bool{}
	for i := range c.Steps {
		s := &c.Steps[i]
		check(s.Name != "" && !names[s.Name], "must be given, and be this step's alone", "steps", i+1, "name")
		names[s.Name] = true
		c.validateStep(s, func(ok bool, rule string, path ...any) { check(ok, rule, append([]any{"steps", i + 1}, path...)...) })
	}
	c.validateShutdowns(check)
	return errors.Join(errs...)
}

// validateStep validates a step and sets its defaults.
func (c *Config) validateStep(s *Step, check func(ok bool, rule string, path ...any)) {
	var err error
	for j, cause := range s.Causes {
		check(slices.Contains(causes(), cause), fmt.Sprintf("must be one of %v", causes()), "causes", j+1)
	}
	s.Severity = cmp.Or(s.Severity, incident.Warning)
	check(s.Severity == incident.Warning || s.Severity == incident.Critical, "must be warning or critical, the least that is told", "severity")
	for j, text := range s.Hours {
		span, err := parseHours(text)
		check(err == nil, fmt.Sprint(err), "hours", j+1)
		s.hours = append(s.hours, span)
	}
	check(len(s.Hours) == 0 || s.Zone != "", "must be given with hours: Europe/Zurich", "zone")
	s.environ, s.page = c.environ, strings.TrimRight(c.API, "/")+"/incidents/"
	if s.zone, err = time.Local, nil; s.Zone != "" {
		s.zone, err = maintenance.Zone(s.Zone)
	}
	check(err == nil, fmt.Sprintf("%s: %v", s.Zone, err), "zone")
	check(s.After >= 0 && s.After <= maxAfter, "must be from 0s to 24h", "after")
	check(s.Timeout >= 0 && s.Timeout <= maxTimeout, "must be from 0s to 1h", "timeout")
	s.Timeout, s.AtMost = cmp.Or(s.Timeout, defaultTimeout), cmp.Or(s.AtMost, new(defaultAtMost))
	check(*s.AtMost >= 1, "must be 1 or more", "at_most")
	given := 0
	for _, is := range []bool{s.URL != "", s.URLFile != "", len(s.Command) > 0} {
		if is {
			given++
		}
	}
	check(given == 1, "must have one action: url, url_file or command")
	where := "url"
	if s.URLFile != "" {
		where = "url_file"
		s.URL, err = secret(s.URLFile)
		check(err == nil, fmt.Sprint(err), where)
	}
	if s.URL != "" {
		err = checkURL(s.URL)
		check(err == nil, "no notification service understands it: "+redact(err, s.URL), where)
	}
	if len(s.Command) > 0 {
		_, err = exec.LookPath(s.Command[0])
		check(err == nil, fmt.Sprint(err), "command")
	}
}

func (c *Config) validateShutdowns(check func(ok bool, rule string, path ...any)) {
	names := map[string]bool{}
	for i := range c.Shutdowns {
		d := &c.Shutdowns[i]
		check(d.Name != "" && !names[d.Name], "must be given, and be this shutdown's alone", "shutdowns", i+1, "name")
		names[d.Name] = true
		check(c.Gateway != "", "must be given with shutdowns: they follow this gateway's readings alone", "gateway")
		check(d.Room != "", "must be given", "shutdowns", i+1, "room")
		check(d.Above >= minAbove && d.Above <= maxPossible, "must be from 25 to 80 °C", "shutdowns", i+1, "above")
		check(d.For >= time.Minute && d.For <= incident.MaxFor, "must be from 1m to 1h", "shutdowns", i+1, "for")
		check(len(d.Stages) > 0, "must have at least one stage", "shutdowns", i+1, "stages")
		d.DryRun = cmp.Or(d.DryRun, new(true))
		var after time.Duration
		for j := range d.Stages {
			s := &d.Stages[j]
			s.Name, s.Timeout = cmp.Or(s.Name, strconv.Itoa(j+1)), cmp.Or(s.Timeout, defaultStageTimeout)
			check(s.After >= after && s.After <= maxAfter, "must be from that of the stage before to 24h", "shutdowns", i+1, "stages", j+1, "after")
			after = s.After
			check(s.Timeout > 0 && s.Timeout <= maxTimeout, "must be from 0s to 1h", "shutdowns", i+1, "stages", j+1, "timeout")
			_, err := exec.LookPath(cmp.Or(append(s.Command, "")[0], "(none)"))
			check(err == nil, fmt.Sprint(err), "shutdowns", i+1, "stages", j+1, "command")
		}
	}
}

// resolve finds the rooms that steps and shutdowns name. A step that names an unknown room has all
// rooms: too many messages are better than none.
func (c *Config) resolve(rooms map[int64]string) error {
	var errs []error
	find := func(name string, path ...any) (found []int64) {
		for id, known := range rooms {
			if name == known || name == strconv.FormatInt(id, 10) {
				found = append(found, id)
			}
		}
		if len(found) == 0 {
			errs = append(errs, fmt.Errorf("%s: no room is called %q; there are %q", setting(path), name, slices.Sorted(maps.Values(rooms))))
		}
		return found
	}
	for i := range c.Steps {
		s := &c.Steps[i]
		s.rooms = nil
		for j, name := range s.Rooms {
			found := find(name, "steps", s.at+1, "rooms", j+1)
			if len(found) == 0 {
				s.rooms = nil
				break
			}
			s.rooms = append(s.rooms, found...)
		}
	}
	for i := range c.Shutdowns {
		d := &c.Shutdowns[i]
		d.room = -1 // no incident's: 0 is that of a sensor in no room
		switch found := find(d.Room, "shutdowns", i+1, "room"); len(found) {
		case 0:
		case 1:
			d.room = found[0]
		default:
			errs = append(errs, fmt.Errorf("shutdowns %d room: several rooms are called %q; give the id", i+1, d.Room))
		}
	}
	return errors.Join(errs...)
}

// setting names a setting by its path, such as "steps 1 url".
func setting(path []any) string { return strings.TrimSpace(fmt.Sprintln(path...)) }

func isAddress(text string) bool {
	api, err := url.Parse(text)
	return err == nil && (api.Scheme == "https" || api.Scheme == "http") && api.Host != ""
}

// secret reads a file that others may not read.
func secret(path string) (string, error) {
	if path == "" {
		return "", errors.New("must be the path of a file")
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err //nolint:wrapcheck // it names the path
	}
	if info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("%s holds a secret that everybody may read: chmod o= %s", path, path)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the path is the operator's
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return string(bytes.TrimSpace(text)), err //nolint:wrapcheck // it names the path
}

// redact returns an error's text without the secrets of a URL.
func redact(err error, secretURL string) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if secretURL != "" {
		text = strings.ReplaceAll(text, secretURL, "(the URL)")
	}
	_, rest, _ := strings.Cut(secretURL, "://")
	for part := range strings.FieldsFuncSeq(rest, func(r rune) bool { return strings.ContainsRune(":@/?&=#", r) }) {
		decoded, _ := url.QueryUnescape(part)
		for _, form := range []string{part, decoded} {
			if len(form) > 3 {
				text = strings.ReplaceAll(text, form, "…")
			}
		}
	}
	return text
}

var hoursForm = regexp.MustCompile(`^([A-Z][a-z]{2})(?:-([A-Z][a-z]{2}))? ([0-2][0-9]):([0-5][0-9])-([0-2][0-9]):([0-5][0-9])$`)

// parseHours reads "Mon-Fri 08:00-18:00". If the end is before the start, it is on the next day.
func parseHours(text string) (h hours, err error) {
	days := []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}
	m := hoursForm.FindStringSubmatch(text)
	if m == nil {
		return h, fmt.Errorf("%q must be like Mon-Fri 08:00-18:00", text)
	}
	first, last := slices.Index(days, m[1]), slices.Index(days, cmp.Or(m[2], m[1]))
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[3+i])
	}
	h.from, h.to = n[0]*60+n[1], n[2]*60+n[3]
	if first < 0 || last < 0 || h.from >= 24*60 || h.to > 24*60 || h.from == h.to {
		return h, fmt.Errorf("%q must be like Mon-Fri 08:00-18:00", text)
	}
	for day := first; ; day = (day + 1) % 7 {
		h.days[day] = true
		if day == last {
			return h, nil
		}
	}
}

func (h hours) contain(t time.Time) bool {
	day, minute := int(t.Weekday()), t.Hour()*60+t.Minute()
	if h.from < h.to {
		return h.days[day] && minute >= h.from && minute < h.to
	}
	return h.days[day] && minute >= h.from || h.days[(day+6)%7] && minute < h.to
}

// due returns when a step sends a new message: after its delay, within its hours.
func (s *Step) due(now time.Time) time.Time {
	at := now.Add(s.After)
	inside := func(h hours) bool { return h.contain(at.In(s.zone)) }
	for end := at.Add(8 * 24 * time.Hour); len(s.hours) > 0 && at.Before(end) && !slices.ContainsFunc(s.hours, inside); {
		at = at.Truncate(time.Minute).Add(time.Minute)
	}
	return at
}

// wants reports whether a step notifies people of an incident, and if not why.
func (s *Step) wants(i *Incident) (why string, wanted bool) {
	switch {
	case i.Cause == blind: // whatever rooms the step is for
		return "", true
	case len(s.rooms) > 0 && (i.RoomID == nil || !slices.Contains(s.rooms, *i.RoomID)):
		return fmt.Sprintf("its rooms are %q", s.Rooms), false
	case len(s.Causes) > 0 && !slices.Contains(s.Causes, i.Cause):
		return fmt.Sprintf("its causes are %v", s.Causes), false
	case s.Severity == incident.Critical && i.Severity != incident.Critical:
		return "it tells only what is critical", false
	}
	return "", true
}
