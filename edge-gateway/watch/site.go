package watch

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
)

const (
	judgeEvery    = 5 * time.Second
	overviewEvery = 15 * time.Second
	rulesEvery    = 5 * time.Minute
	awayAfter     = 40 * time.Second // without an answer; a poll waits 25 s
	unseenAfter   = 30 * time.Second // from a reading until the service must show it
	blindAfter    = time.Minute      // until people are told that nobody judges
	// pointsKept is the longest time to fire or to clear, and the longest gap that counts.
	pointsKept = incident.MaxFor + incident.MaxPause + incident.RateReach
	// betweenLooks is how much later than the last judgement on site a call of the service may be
	// to be the one that people were told of then.
	betweenLooks   = 30 * time.Second
	judgedKept     = 24 * time.Hour // to recognise incidents that the service reports late
	liveTimeout    = 5 * time.Second
	rounding       = 2 * time.Second // the overview has times in whole seconds
	blind          = incident.Cause("blind")
	blindTitle     = "Nobody watches the site"
	judgedOnSite   = " (judged on site)"
	journalFile    = "journal.json"
	siteFile       = "site.json"
	gatewayAddress = "http://gateway" // of requests over the unix socket
)

// site is what the watch stores on disk to judge without the service.
type site struct {
	Rooms   map[int64]string `json:"rooms"`
	Sensors []sensor         `json:"sensors"`
	Rules   []rule           `json:"rules"`
	Windows []window         `json:"windows"`
	// Instructions say what to do in each room in trouble.
	Instructions map[int64]string `json:"instructions"`
	// Corrections are those in force within the last day, and planned ones.
	Corrections []correction `json:"corrections"`
}

// sensor is a sensor of the overview.
type sensor struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	RoomID    int64      `json:"room_id"`
	Timestamp *time.Time `json:"timestamp"` // of its newest reading that the service has
}

// rule is a rule in the API's form.
type rule struct {
	ID          int64              `json:"id"`
	Version     int64              `json:"version"`
	Quantity    incident.Quantity  `json:"quantity"`
	Direction   incident.Direction `json:"direction"`
	Limit       float64            `json:"limit"`
	ForS        float64            `json:"for_s"`
	ClearMargin float64            `json:"clear_margin"`
	ClearForS   float64            `json:"clear_for_s"`
	Severity    incident.Severity  `json:"severity"`
	Enabled     bool               `json:"enabled"`
	RoomID      *int64             `json:"room_id"`
	SensorID    *string            `json:"sensor_id"`
	Threshold   bool               `json:"threshold"`
}

// window is a maintenance window in the API's form.
type window struct {
	StartTime time.Time      `json:"start_time"`
	DurationS float64        `json:"duration_s"`
	TimeZone  string         `json:"time_zone"`
	Weekdays  []time.Weekday `json:"weekdays"`
	Until     *time.Time     `json:"until"`
	RoomIDs   []int64        `json:"room_ids"`
	SensorID  *string        `json:"sensor_id"`
}

// correction is a sensor's correction in the API's form.
type correction struct {
	SensorID    string    `json:"sensor_id"`
	From        time.Time `json:"from"`
	Temperature float64   `json:"temperature_offset"` // °C
	Humidity    float64   `json:"humidity_offset"`    // %
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func deref[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

func (s *site) rules() []incident.Rule {
	rules := make([]incident.Rule, len(s.Rules))
	for i, r := range s.Rules {
		rules[i] = incident.Rule{
			ID: r.ID, Version: r.Version, Quantity: r.Quantity, Direction: r.Direction, Limit: r.Limit, For: seconds(r.ForS), ClearMargin: r.ClearMargin,
			ClearFor: seconds(r.ClearForS), Severity: r.Severity, Enabled: r.Enabled, Threshold: r.Threshold,
			Scope: incident.Scope{RoomID: deref(r.RoomID), SensorID: deref(r.SensorID)},
		}
	}
	return rules
}

// silenced reports whether a maintenance window covers a sensor of a room, or the room.
func (s *site) silenced(room int64, sensor string, now time.Time) bool {
	return slices.ContainsFunc(s.Windows, func(w window) bool {
		zone, err := maintenance.Zone(cmp.Or(w.TimeZone, "UTC"))
		if err != nil || !slices.Contains(w.RoomIDs, room) && (sensor == "" || deref(w.SensorID) != sensor) {
			return false
		}
		_, _, inside := maintenance.Window{Start: w.StartTime.In(zone), Duration: seconds(w.DurationS), Weekdays: w.Weekdays, Until: deref(w.Until)}.At(now)
		return inside
	})
}

// correct returns a reading's values as the service stores them.
func (s *site) correct(node string, p incident.Point) incident.Point {
	var own reading.Corrections
	for _, c := range s.Corrections {
		if c.SensorID == node {
			own = append(own, reading.Correction{From: c.From, Temperature: c.Temperature, Humidity: c.Humidity})
		}
	}
	slices.SortFunc(own, func(a, b reading.Correction) int { return b.From.Compare(a.From) }) // newest first
	p.Temperature, p.Humidity = own.Values(p.Time, p.Temperature, p.Humidity)
	return p
}

// away returns why the service cannot be relied on, or "".
func (w *Watch) away(now time.Time) string {
	if silent := now.Sub(w.answered); silent > awayAfter {
		return "the API has not answered for " + incident.InWords(silent)
	}
	if w.late {
		return "the service is late"
	}
	shown := w.live.time.Add(w.overviewAt.Sub(now)) // by the gateway's clock
	for _, s := range w.site.Sensors {
		for _, p := range slices.Backward(w.live.points[s.ID]) {
			if shown.Sub(p.Time) <= unseenAfter {
				continue
			}
			if s.Timestamp == nil || p.Time.Sub(*s.Timestamp) >= rounding {
				return "the service does not have what " + cmp.Or(s.Name, s.ID) + " measured " + incident.InWords(now.Sub(p.Time)) + " ago"
			}
			break
		}
	}
	return ""
}

// judgeOnSite reads the gateway's readings, and judges them while the service is away.
func (w *Watch) judgeOnSite(ctx context.Context) {
	answer, err := w.readLive(ctx)
	now := w.clock()
	w.logFailure(ctx, "asking the gateway", err) // people are told only that it does not answer
	w.change(ctx, func(s *state) bool {
		w.live.err = err
		if err == nil {
			w.live.add(answer, &w.site, now)
		}
		why := w.away(now)
		if (why == "") != (w.why == "") {
			w.log.InfoContext(ctx, "judging on site", "because", cmp.Or(why, "the service is back"), "judging", why != "")
		}
		w.why = why
		before, last := len(s.Queue)+len(s.Judged), s.Last
		var unseen string
		switch {
		case why != "" && err != nil:
			unseen = fmt.Sprintf("%s%s, and the gateway of this machine does not answer", strings.ToUpper(why[:1]), why[1:])
		case why != "" && !w.live.standby && w.live.allSilent():
			unseen = fmt.Sprintf("%s%s, and the gateway hears no node", strings.ToUpper(why[:1]), why[1:])
		case err == nil:
			s.judge(w.config.Steps, &w.site, &w.live, why != "", now)
		}
		if why != "" || !w.overviewAt.IsZero() { // else a start does not know yet whether the service answers
			s.updateBlind(w.config.Steps, unseen, now)
		}
		return len(s.Queue)+len(s.Judged) != before || s.Last != last || why != ""
	})
}

// readLive reads the gateway's readings from two minutes before the last call on, because a reading
// may be dated back.
func (w *Watch) readLive(ctx context.Context) (*gateway.Live, error) {
	var since time.Time
	if !w.live.time.IsZero() {
		since = w.live.time.Add(-2 * time.Minute)
	}
	question := "/live?since=" + since.UTC().Format(time.RFC3339Nano) + "&after="
	var all []gateway.LiveNode
	for after := ""; ; after = all[len(all)-1].NodeID {
		var answer gateway.Live
		limited, cancel := context.WithTimeout(ctx, liveTimeout)
		err := w.gateway.get(limited, question+after, &answer)
		cancel()
		if err != nil {
			return nil, err
		}
		all = append(all, answer.Nodes...)
		if len(answer.Nodes) != gateway.LivePage || answer.Nodes[0].NodeID <= after { // or one of the version before, without pages
			answer.Nodes = all
			return &answer, nil
		}
	}
}

// refresh reads the service's state, rules and sensors, and stores them when they have changed, or
// the file is lost: without it a start needs the API.
func (w *Watch) refresh(ctx context.Context) {
	var tag string
	var rulesAt time.Time
	var seen *overview // the newest
	var written []byte
	for ; ctx.Err() == nil; _ = pause.For(ctx, overviewEvery) {
		next := w.site
		now := w.clock()
		anew, newTag, err := w.client.overview(ctx, tag)
		if err == nil {
			if anew != nil {
				seen = anew
			}
			next.Rooms, next.Sensors = seen.names(), seen.Sensors
			w.change(ctx, func(s *state) bool {
				before := len(s.Queue)
				moved := anew != nil && anew.Time.Sub(now).Abs() < time.Minute && s.notAhead(w.config.Steps, w.clock())
				if w.why == "" { // else the judgement on site is newer
					s.observe(w.config.Steps, seen.Incidents, now)
				}
				return moved || len(s.Queue) != before
			})
		}
		if err == nil && now.Sub(rulesAt) >= rulesEvery {
			if err = w.client.rules(ctx, &next); err == nil {
				rulesAt = now
			}
		}
		if w.logFailure(ctx, "reading rules and sensors", err) {
			continue
		}
		w.mu.Lock()
		w.answered, w.overviewAt, tag, w.late, w.site = w.clock(), now, newTag, seen.Probe.Late, next
		w.mu.Unlock()
		next.Sensors = slices.Clone(next.Sensors)
		for i := range next.Sensors {
			next.Sensors[i].Timestamp = nil // it changes with each reading, and is old after a restart
		}
		w.logFailure(ctx, "keeping rules and sensors", w.config.write(siteFile, &next, &written))
	}
}

// rules reads rules, maintenance windows, corrections of sensors and instructions of rooms.
func (c *client) rules(ctx context.Context, into *site) error {
	var rules []rule
	var windows []window
	var corrections []correction
	for path, list := range map[string]any{"rules": &rules, "maintenance": &windows, "corrections": &corrections} {
		if err := c.get(ctx, "/api/v1/"+path, list); err != nil {
			return err
		}
	}
	type room struct {
		ID           int64  `json:"id"`
		CustomerID   int64  `json:"customer_id"`
		Instructions string `json:"instructions"`
	}
	var rooms []room
	for id := range into.Rooms { // any of them has the customer's id
		var one room
		if err := c.get(ctx, fmt.Sprintf("/api/v1/server_rooms/room/%d", id), &one); err != nil {
			return err
		}
		if err := c.get(ctx, fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", one.CustomerID), &rooms); err != nil {
			return err
		}
		break
	}
	into.Rules, into.Windows, into.Corrections, into.Instructions = rules, windows, corrections, map[int64]string{}
	for _, r := range rooms {
		into.Instructions[r.ID] = r.Instructions
	}
	return nil
}

// overview is the part of the API's answer that the watch reads.
type overview struct {
	Time  time.Time `json:"time"`
	Rooms []struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	} `json:"rooms"`
	Sensors   []sensor   `json:"sensors"`
	Incidents []Incident `json:"incidents"` // that last
	Probe     struct {
		Late bool `json:"late"`
	} `json:"probe"`
}

func (o *overview) names() map[int64]string {
	names := map[int64]string{}
	for _, room := range o.Rooms {
		names[room.ID] = room.Name
	}
	return names
}

// overview returns the account's state, or nil if it is unchanged since tag.
func (c *client) overview(ctx context.Context, tag string) (*overview, string, error) {
	var seen overview
	answer, err := c.call(ctx, http.MethodGet, "/api/v1/overview", http.Header{"If-None-Match": {tag}}, nil, &seen)
	if tag != "" && api.IsStatus(err, http.StatusNotModified) {
		return nil, tag, nil
	}
	return &seen, answer.Get("ETag"), err
}
