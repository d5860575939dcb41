package watch

import (
	"context"
	_ "embed" // the example
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/shared/incident"
)

// Question describes an incident to the doctor, which answers what would happen if it began now.
type Question struct {
	Room     string // name or id
	Cause    incident.Cause
	Severity incident.Severity
}

// room returns the id of the question's room, or an error if the question cannot be answered.
func (q Question) room(rooms map[int64]string) (room int64, err error) {
	for id, name := range rooms {
		if q.Room == name || q.Room == strconv.FormatInt(id, 10) {
			room = id
		}
	}
	switch {
	case q.Room == "":
		return 0, fmt.Errorf("of which room? Say it by --room; there are %q", slices.Sorted(maps.Values(rooms)))
	case room == 0:
		return 0, fmt.Errorf("no room is called %q; there are %q", q.Room, slices.Sorted(maps.Values(rooms)))
	case !slices.Contains(causes(), q.Cause):
		return 0, fmt.Errorf("%q is no cause; there are %v", q.Cause, causes())
	case q.Severity != incident.Warning && q.Severity != incident.Critical:
		return 0, fmt.Errorf("%q is no severity; there are %s and %s", q.Severity, incident.Warning, incident.Critical)
	}
	return room, nil
}

// Doctor prints what each step of the watch would do now, or why it would do nothing. It changes
// nothing, and may run while the watch does. It returns an error if nobody would be told.
func Doctor(ctx context.Context, c *Config, transport *http.Client, q Question, now time.Time, out io.Writer) error {
	say := func(format string, values ...any) { _, _ = fmt.Fprintf(out, format+"\n", values...) }
	w, away, err := load(ctx, c, transport, func() time.Time { return now })
	if err != nil {
		return err
	}
	if err := c.resolve(w.site.Rooms); err != nil {
		return err
	}
	room, err := q.room(w.site.Rooms)
	if err != nil {
		return err
	}
	say("The API %s.", orNot(away, "answers"))
	if w.gateway != nil {
		answer, err := w.readLive(ctx)
		say("The gateway %s.", orNot(err, "answers"))
		if w.live.err = err; err == nil {
			w.live.add(answer, &w.site, now)
			if answer.Standby {
				say("It is the standby of a pair: on site this watch tells only of nodes that still send to it.")
			}
		}
	} else {
		say("No gateway is set: while the API is away nothing is judged.")
	}
	if w.unread != nil {
		say("A start begins anew: %v.", w.unread)
	}
	if age := w.state.waiting(w.config.Steps, now); age > 0 {
		say("The oldest message waits for %s.", incident.InWords(age))
	}
	name := w.site.Rooms[room]
	begins := &Incident{RoomID: &room, RoomName: &name, Cause: q.Cause, Severity: q.Severity, Phase: "actual", State: "open", StartTime: now}
	say("If an incident began now: %s", message("start", begins).Title)
	reached := w.explainSteps(begins, now, say)
	w.explainShutdowns(begins, away != nil, now, say)
	if reached == 0 {
		return errors.New("nobody would be told")
	}
	return nil
}

// explainSteps prints what each step would do about an incident, and counts those that would
// notify people.
func (w *Watch) explainSteps(begins *Incident, now time.Time, say func(format string, values ...any)) (reached int) {
	silenced := w.site.silenced(*begins.RoomID, "", now)
	for _, step := range w.config.Steps {
		why, wanted := step.wants(begins)
		due := step.due(now)
		sent := slices.DeleteFunc(slices.Clone(w.state.Sent[step.Name]), func(t time.Time) bool { return now.Sub(t) >= time.Hour })
		switch {
		case silenced:
			say("  %s: no, a maintenance window silences the room", step.Name)
			continue
		case !wanted:
			say("  %s: no, %s", step.Name, why)
			continue
		case len(sent) >= *step.AtMost && begins.Severity != incident.Critical:
			say("  %s: with the next digest, %d messages were sent within the hour", step.Name, len(sent))
		case due.After(now):
			say("  %s: at %s, unless somebody takes it or it ends before", step.Name, due.In(step.zone).Format("Mon 2006-01-02 15:04:05 MST"))
		default:
			say("  %s: at once", step.Name)
		}
		reached++
	}
	return reached
}

// explainShutdowns prints what each shutdown of the room would do about an incident.
func (w *Watch) explainShutdowns(begins *Incident, away bool, now time.Time, say func(format string, values ...any)) {
	for _, d := range w.config.Shutdowns {
		if d.room != *begins.RoomID {
			continue
		}
		delete(w.state.Shutdowns, d.Name)
		w.state.Incidents = map[int64]*tracked{1: {Incident: Incident{ID: 1, RoomID: begins.RoomID, Cause: incident.TooHot}}}
		stage, why := w.state.due(&d, &w.site, &w.live, away, now)
		switch {
		case begins.Cause != incident.TooHot:
			say("  shutdown %s: no, it is for too_hot", d.Name)
		case stage == nil:
			say("  shutdown %s: no, %s", d.Name, why)
		case *d.DryRun:
			say("  shutdown %s: it would only tell, dry_run is set", d.Name)
		default:
			say("  shutdown %s: at once, stage %s", d.Name, stage.Name)
		}
	}
}

func orNot(err error, answers string) string {
	if err != nil {
		return "does not answer: " + err.Error()
	}
	return answers
}

// Take takes an incident, for a command that a pager calls.
func Take(ctx context.Context, c *Config, transport *http.Client, id int64) error {
	path := fmt.Sprintf("/api/v1/incidents/%d/actions", id)
	_, err := (&client{http: transport, api: c.API, key: c.key}).call(ctx, http.MethodPost, path, nil, map[string]string{"action": "take"}, nil)
	return err
}

// Group is the group of the user that the package creates for the watch.
const Group = "monitor-gateway-watch"

//go:embed watch.example.yaml
var example string

// Init writes a configuration with one step, its key and the URL of its notification service,
// each into a file that only root and the watch's group may read. It replaces no configuration.
func Init(ctx context.Context, path string, answers Answers, transport *http.Client) error {
	folder := filepath.Dir(path)
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s already exists: edit it", path)
	}
	if !isAddress(answers.API) {
		return errors.New("--api must be the address of the API, https://…")
	}
	if err := checkURL(answers.URL); err != nil {
		return errors.New("no notification service understands the URL: " + redact(err, answers.URL))
	}
	if err := (&client{http: transport, api: answers.API, key: answers.Key}).heartbeat(ctx, heartbeat{Name: answers.Name}); err != nil {
		return fmt.Errorf("try the key at the API: %w", err)
	}
	name, err := json.Marshal(answers.Name)
	if err != nil {
		return fmt.Errorf("write the name: %w", err)
	}
	text := strings.NewReplacer(`"Zurich"`, string(name), "https://coldaisle.example.com", answers.API, "/etc/monitor-gateway/", folder+"/").Replace(example)
	if folder != "/etc/monitor-gateway" { // nor is the package's folder for the journal there
		text = strings.Replace(text, "key_file:", "state: "+folder+"\nkey_file:", 1)
	}
	group := -1
	if found, err := user.LookupGroup(Group); err == nil {
		group, _ = strconv.Atoi(found.Gid)
	}
	for file, content := range map[string]string{"watch.key": answers.Key + "\n", "watch.url": answers.URL + "\n", filepath.Base(path): text} {
		file = filepath.Join(folder, file)
		// An earlier file may have other rights, as the umask may give.
		_ = os.Remove(file)
		if err := errors.Join(os.WriteFile(file, []byte(content), 0o640), os.Chmod(file, 0o640), os.Chown(file, -1, group)); err != nil { //nolint:gosec // its group is the watch's
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	return nil
}

// Answers are what a first configuration needs.
type Answers struct{ API, Name, Key, URL string }
