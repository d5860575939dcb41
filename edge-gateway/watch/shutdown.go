package watch

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
)

// Shutdown runs commands, stage by stage, that switch off equipment in a room while it is too hot.
type Shutdown struct {
	Name  string        `yaml:"name"`
	Room  string        `yaml:"room"`  // name or id
	Above float64       `yaml:"above"` // °C
	For   time.Duration `yaml:"for"`
	// DryRun only notifies people of what it would do; true unless it is set to false.
	DryRun *bool `yaml:"dry_run"`
	// OneSensor allows it in a room with one sensor, OnSite while the watch judges on site:
	// anybody on the LAN can post a reading.
	OneSensor bool    `yaml:"one_sensor"`
	OnSite    bool    `yaml:"on_site"`
	Stages    []Stage `yaml:"stages"`

	room int64
}

// Stage is one command of a shutdown.
type Stage struct {
	Name    string        `yaml:"name"`
	After   time.Duration `yaml:"after"` // since the shutdown's condition has held
	Command []string      `yaml:"command"`
	Timeout time.Duration `yaml:"timeout"`
}

// shutdownRun is the progress of a shutdown in an incident. A stage is on disk before its command
// runs, so that it does not run again after a crash.
type shutdownRun struct {
	IncidentID int64     `json:"incident_id"`
	Since      time.Time `json:"since"` // when its condition first held
	Begun      int       `json:"begun"` // how many stages
	Running    *Message  `json:"running,omitempty"`
}

// Signs of a sensor that does not measure the air.
const (
	stuckReadings = 10              // this many equal readings
	stuckFor      = 5 * time.Minute // over this time
	maxStep       = 10.0            // °C from one reading to the next, within a minute
	maxPossible   = 80.0            // °C, what common sensors can measure
)

// unfit returns why a sensor's readings cannot be trusted, or "".
func (l *live) unfit(points []incident.Point) string {
	// Humidity that comes apart says nothing of the thermometer.
	points = slices.DeleteFunc(slices.Clone(points), func(p incident.Point) bool { return !reading.Has(p.Temperature) })
	if len(points) == 0 {
		return "the gateway has not heard it"
	}
	if _, silent := l.silentSince(points); silent {
		return "silent"
	}
	newest := points[len(points)-1]
	same := 1
	for i := len(points) - 2; i >= 0 && points[i].Temperature == newest.Temperature && sameValue(points[i].Humidity, newest.Humidity); i-- {
		same++
	}
	if same >= stuckReadings && newest.Time.Sub(points[len(points)-same].Time) >= stuckFor {
		return "stuck"
	}
	for i := range points {
		step := i > 0 && points[i].Time.Sub(points[i-1].Time) <= time.Minute && math.Abs(points[i].Temperature-points[i-1].Temperature) > maxStep
		if step || points[i].Temperature > maxPossible {
			return "its values are impossible"
		}
	}
	return ""
}

// sameValue compares values; two missing ones are equal.
func sameValue(a, b float64) bool { return a == b || !reading.Has(a) && !reading.Has(b) }

// hot returns why the room does not count as too hot for a shutdown, or "".
func (d *Shutdown) hot(here *site, l *live) (why string) {
	limit := incident.Rule{Version: 1, Quantity: incident.Temperature, Direction: incident.Above, Limit: d.Above, For: d.For, Severity: incident.Critical, Enabled: true}
	hot, all, unfit := 0, 0, ""
	for _, s := range here.Sensors {
		if s.RoomID != d.room {
			continue
		}
		all++
		points := l.points[s.ID]
		if reason := l.unfit(points); reason != "" {
			unfit += fmt.Sprintf("; %s does not count: %s", s.Name, reason)
			continue
		}
		if stretches := limit.Preview(points); len(stretches) > 0 && stretches[len(stretches)-1].Lasting {
			hot++
		}
	}
	need := 2
	if all == 1 {
		if need = 1; !d.OneSensor {
			return "the room has one sensor, and one_sensor is not set"
		}
	}
	if hot >= need && 2*hot >= all {
		return ""
	}
	return fmt.Sprintf("%d of %d sensors have been above %g °C for %v; at least %d and half of them must%s", hot, all, d.Above, d.For, need, unfit)
}

// due returns the stage to run now, or why there is none.
func (s *state) due(d *Shutdown, here *site, l *live, away bool, now time.Time) (stage *Stage, why string) {
	run := s.Shutdowns[d.Name]
	var of *tracked
	for _, k := range s.Incidents {
		if deref(k.Incident.RoomID) != d.room || k.Incident.Cause != incident.TooHot || k.Incident.Drill {
			continue
		}
		if of == nil || run != nil && k.Incident.ID == run.IncidentID { // no stage twice, should there be two
			of = k
		}
	}
	if of == nil {
		delete(s.Shutdowns, d.Name)
		return nil, "nobody was told that the room is too hot"
	}
	if run != nil && run.IncidentID != of.Incident.ID {
		run = nil
	}
	if l.err != nil || now.Sub(l.readAt) > blindAfter {
		return nil, "the gateway of this machine does not answer"
	}
	if of.Incident.Silenced {
		return nil, "maintenance silences the incident"
	}
	if (away || of.Incident.ID < 0) && !d.OnSite {
		return nil, "the watch judges on site, and on_site is not set"
	}
	if why := d.hot(here, l); why != "" {
		return nil, why
	}
	if run == nil {
		run = &shutdownRun{IncidentID: of.Incident.ID, Since: now}
		s.Shutdowns[d.Name] = run
	}
	if run.Begun == len(d.Stages) {
		return nil, "all its stages were begun"
	}
	next := &d.Stages[run.Begun]
	if at := run.Since.Add(next.After); now.Before(at) {
		return nil, "stage " + next.Name + " is due at " + at.UTC().Format(time.RFC3339)
	}
	return next, ""
}

// runShutdown runs a shutdown's stages in order, each once in an incident. If one fails, people are
// notified and the next one runs: a machine that hangs must not keep the others on.
func (w *Watch) runShutdown(ctx context.Context, d *Shutdown) {
	notify := func(text string) { // of the stage that runs
		w.change(ctx, func(s *state) bool {
			run := s.Shutdowns[d.Name]
			if run == nil || run.Running == nil {
				return false
			}
			m := *run.Running
			m.Text = fmt.Sprintf("%s\nThe room has been above %g °C for %v.", text, d.Above, d.For)
			for _, step := range w.config.Steps {
				if s.Incidents[m.IncidentID] == nil || s.Incidents[m.IncidentID].Told[step.Name] > 0 {
					s.enqueue(step.Name, w.clock(), m)
				}
			}
			run.Running = nil
			return true
		})
	}
	notify("The watch was killed while it ran: its outcome is not known. It is not run again.")
	for ; ctx.Err() == nil; _ = pause.For(ctx, judgeEvery) {
		var stage *Stage
		var m Message
		w.change(ctx, func(s *state) bool {
			if stage, _ = s.due(d, &w.site, &w.live, w.why != "", w.clock()); stage == nil {
				return false
			}
			run := s.Shutdowns[d.Name]
			run.Begun++
			m = message("shutdown", &s.Incidents[run.IncidentID].Incident)
			m.Title = fmt.Sprintf("SHUTDOWN %s, stage %s", d.Name, stage.Name)
			run.Running = &m
			return true
		})
		if stage == nil {
			continue
		}
		text := ""
		log := w.log.With("shutdown", d.Name, "stage", stage.Name, "incident", m.IncidentID)
		if *d.DryRun {
			text = "Nothing was done, dry_run is set. It would run " + plain(fmt.Sprint(stage.Command))
			log.InfoContext(ctx, "shutdown would run")
		} else {
			log.WarnContext(ctx, "shutdown runs")
			output, err := (&Step{Command: stage.Command, Timeout: stage.Timeout, environ: w.config.environ}).run(ctx, w.config.Name, m)
			text = "It has succeeded."
			if err != nil {
				text = "It has FAILED: " + err.Error()
			}
			log.WarnContext(ctx, "shutdown ran", "output", output, "result", text)
		}
		notify(text)
	}
}
