package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
)

// TestShutdownOrder runs 1,000 shutdowns of stages that fail at random: each stage once, in
// order, whatever became of the ones before.
func TestShutdownOrder(t *testing.T) {
	t.Parallel()
	runs := 50
	if tooltest.Nightly() {
		runs = 1000
	}
	for range runs {
		synctest.Test(t, func(t *testing.T) {
			written := filepath.Join(t.TempDir(), "written")
			d := &Shutdown{Name: "d", room: 1, Above: 35, For: time.Minute, DryRun: new(false)}
			var want []string
			var after time.Duration
			for n := range 2 + rand.IntN(5) { //nolint:gosec // a test
				after += time.Duration(rand.IntN(3)) * time.Minute                        //nolint:gosec // the same
				script := fmt.Sprintf("echo %d >> %s; exit %d", n, written, rand.IntN(2)) //nolint:gosec // the same
				d.Stages = append(d.Stages, Stage{Name: strconv.Itoa(n), After: after, Command: []string{"/bin/sh", "-c", script}, Timeout: time.Minute})
				want = append(want, strconv.Itoa(n))
			}
			w := &Watch{
				config: &Config{State: t.TempDir(), Steps: []Step{{Name: "a", zone: time.UTC}}, Shutdowns: []Shutdown{*d}}, clock: time.Now, log: logging.Discard(),
				site: site{Sensors: []sensor{{ID: "a", RoomID: 1}, {ID: "b", RoomID: 1}}}, state: *newState(),
			}
			burning := hot(1)
			w.state.Incidents[1] = &tracked{Incident: burning, Told: map[string]int{"a": 1}, Called: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				for ; ctx.Err() == nil; _ = pause.For(ctx, 5*time.Second) {
					w.mu.Lock()
					w.live = hotSite(time.Now(), map[string]float64{"a": 40, "b": 41})
					w.mu.Unlock()
				}
			})
			running.Go(func() { w.runShutdown(ctx, d) })
			time.Sleep(20 * time.Minute)
			stop()
			running.Wait()
			text, _ := os.ReadFile(written) //nolint:gosec // a test's
			must.Equal(t, "stages", want, strings.Fields(string(text)))
			must.Equal(t, "messages", len(want), len(w.state.Queue))
		})
	}
}

// limited is a room of one sensor, which is critical above 32 °C.
func limited() *site {
	return &site{
		Rooms: map[int64]string{1: "Hall A"}, Sensors: []sensor{{ID: "a", RoomID: 1}},
		Rules: []rule{{Quantity: incident.Temperature, Direction: incident.Above, Limit: 32, Severity: incident.Critical, Enabled: true}},
	}
}

// hotSite has half an hour of readings, each 30 s, at the temperatures of nodes.
func hotSite(now time.Time, nodes map[string]float64) live {
	l := live{readAt: now, time: now, points: map[string][]incident.Point{}}
	for id, celsius := range nodes {
		for age := 30 * time.Minute; age >= 0; age -= 30 * time.Second {
			noise := float64(age/(30*time.Second)%7) / 10
			l.points[id] = append(l.points[id], incident.Point{Time: now.Add(-age), Temperature: celsius + noise, Humidity: 30})
		}
	}
	return l
}

// conditions are all that decides whether a shutdown runs; a change alters one of them.
type conditions struct {
	shutdown Shutdown
	state    *state
	site     site
	live     live
	away     bool
}

type change func(*conditions)

// TestShutdownNeedsMore has everything that must not shut a room down, forged readings of one node among it.
func TestShutdownNeedsMore(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	four := func(temperatures ...float64) map[string]float64 {
		nodes := map[string]float64{}
		for i, celsius := range temperatures {
			nodes[fmt.Sprint("n", i)] = celsius
		}
		return nodes
	}
	on := func(node string, edit func(points []incident.Point) []incident.Point) change {
		return func(c *conditions) { c.live.points[node] = edit(c.live.points[node]) }
	}
	room := func(n int) change { return func(c *conditions) { c.site.Sensors = c.site.Sensors[:n] } }
	all := func(changes ...change) change {
		return func(c *conditions) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	away := func(c *conditions) { c.away = true }
	for name, c := range map[string]struct {
		nodes  map[string]float64
		change change
		why    string // empty: it shuts down
	}{
		"half of the room":             {nodes: four(40, 41, 22, 22)},
		"forged readings of one node":  {nodes: four(60, 22, 22, 22), why: "1 of 4 sensors"},
		"one of two":                   {nodes: four(60, 22), change: room(2), why: "1 of 2 sensors"},
		"two of five":                  {nodes: four(40, 40, 22, 22, 22), change: room(5), why: "2 of 5 sensors"},
		"not for long enough":          {nodes: four(40, 40, 40, 40), change: all(shortly("n0"), shortly("n1"), shortly("n2")), why: "1 of 4 sensors"},
		"nobody was told":              {nodes: four(40, 40, 40, 40), change: func(c *conditions) { clear(c.state.Incidents) }, why: "nobody was told"},
		"a drill":                      {nodes: four(40, 40, 40, 40), change: func(c *conditions) { c.state.Incidents[1].Incident.Drill = true }, why: "nobody was told"},
		"another room":                 {nodes: four(40, 40, 40, 40), change: func(c *conditions) { c.state.Incidents[1].Incident.RoomID = new(int64(2)) }, why: "nobody was told"},
		"maintenance":                  {nodes: four(40, 40, 40, 40), change: func(c *conditions) { c.state.Incidents[1].Incident.Silenced = true }, why: "maintenance"},
		"the gateway is away":          {nodes: four(40, 40, 40, 40), change: func(c *conditions) { c.live.err = errCut }, why: "does not answer"},
		"judged on site":               {nodes: four(40, 40, 40, 40), change: away, why: "on_site is not set"},
		"judged on site, as allowed":   {nodes: four(40, 40, 40, 40), change: all(away, func(c *conditions) { c.shutdown.OnSite = true })},
		"one sensor":                   {nodes: four(40), change: room(1), why: "one_sensor is not set"},
		"one sensor, as allowed":       {nodes: four(40), change: all(room(1), func(c *conditions) { c.shutdown.OneSensor = true })},
		"silent":                       {nodes: four(40, 40, 22, 22), change: on("n0", func(p []incident.Point) []incident.Point { return p[:len(p)-12] }), why: "silent"},
		"stuck":                        {nodes: four(40, 40, 22, 22), change: on("n0", lately(40)), why: "stuck"},
		"humidity goes on alone":       {nodes: four(40, 40, 22, 22), change: on("n0", lately(reading.Missing())), why: "silent"},
		"stuck, humidity comes apart":  {nodes: four(40, 40, 22, 22), change: all(on("n0", lately(40)), on("n0", apart)), why: "stuck"},
		"humidity comes apart":         {nodes: four(40, 40, 22, 22), change: all(on("n0", apart), on("n1", apart))},
		"impossible values":            {nodes: four(81, 40, 22, 22), why: "impossible"},
		"a jump":                       {nodes: four(40, 40, 22, 22), change: on("n1", func(p []incident.Point) []incident.Point { p[10].Temperature = 20; return p }), why: "impossible"},
		"corrected, it is not so warm": {nodes: four(36, 36, 36, 36), change: corrected, why: "0 of 4 sensors"},
	} {
		given := conditions{
			shutdown: Shutdown{Name: "d", room: 1, Above: 35, For: 10 * time.Minute, Stages: []Stage{{Name: "off"}}},
			state:    newState(), live: hotSite(now, c.nodes),
		}
		given.state.Incidents[1] = &tracked{Incident: hot(1)}
		for i := range len(c.nodes) {
			given.site.Sensors = append(given.site.Sensors, sensor{ID: fmt.Sprint("n", i), Name: fmt.Sprint("n", i), RoomID: 1})
		}
		if c.change != nil {
			c.change(&given)
		}
		stage, why := given.state.due(&given.shutdown, &given.site, &given.live, given.away, now)
		must.Hold(t, (stage != nil) == (c.why == "") && strings.Contains(why, c.why),
			"%s: stage %v, %q, want %q", name, stage, why, c.why)
	}
}

func shortly(node string) change {
	return func(c *conditions) {
		for i := range c.live.points[node][:45] {
			c.live.points[node][i].Temperature = 34
		}
	}
}

// lately has the last twelve measure a temperature.
func lately(celsius float64) func(points []incident.Point) []incident.Point {
	return func(points []incident.Point) []incident.Point {
		for i := len(points) - 12; i < len(points); i++ {
			points[i].Temperature = celsius
		}
		return points
	}
}

// apart has each humidity come a second after the temperature.
func apart(points []incident.Point) (all []incident.Point) {
	for _, p := range points {
		all = append(all, incident.Point{Time: p.Time.Add(-time.Second), Temperature: p.Temperature, Humidity: reading.Missing()},
			incident.Point{Time: p.Time, Temperature: reading.Missing(), Humidity: p.Humidity})
	}
	return all
}

func corrected(c *conditions) {
	for id, points := range c.live.points {
		first := points[0].Time
		c.site.Corrections = append(c.site.Corrections, correction{id, first, -2, 0}, correction{id, first.Add(-time.Hour), 9, 0})
		for i := range points {
			points[i] = c.site.correct(id, points[i])
		}
	}
}

// TestKillWhileAStageRuns starts again from the journal that a kill leaves: the stage is not run again, and people are
// told once that nobody knows its outcome.
func TestKillWhileAStageRuns(t *testing.T) {
	t.Parallel()
	begun := filepath.Join(t.TempDir(), "begun")
	d := &Shutdown{Name: "d", room: 1, Above: 35, For: time.Minute, DryRun: new(false), Stages: []Stage{
		{Name: "off", Command: []string{"/bin/sh", "-c", `echo >> "$0"; sleep 3600`, begun}, Timeout: time.Hour},
	}}
	start := func() *Watch {
		w := &Watch{
			config: &Config{State: t.TempDir(), Steps: []Step{{Name: "a", zone: time.UTC}}}, clock: time.Now, log: logging.Discard(),
			site: site{Sensors: []sensor{{ID: "a", RoomID: 1}, {ID: "b", RoomID: 1}}}, state: *newState(),
			live: hotSite(time.Now(), map[string]float64{"a": 40, "b": 41}),
		}
		w.state.Incidents[1] = &tracked{Incident: hot(1), Told: map[string]int{"a": 1}, Called: map[string]int{}}
		return w
	}
	w := start()
	var killed []byte
	runUntil(t, func(ctx context.Context) { w.runShutdown(ctx, d) }, "a stage runs", func() bool {
		_, err := os.Stat(begun)
		killed, _ = os.ReadFile(filepath.Join(w.config.State, journalFile))
		return err == nil
	})
	for range 2 {
		again := start()
		must.Do(t, os.WriteFile(filepath.Join(again.config.State, journalFile), killed, 0o600))
		must.Do(t, again.config.read(journalFile, &again.state))
		runUntil(t, func(ctx context.Context) { again.runShutdown(ctx, d) }, "it is told", func() bool {
			again.mu.Lock()
			defer again.mu.Unlock()
			return len(again.state.Queue) == 1
		})
		must.Contain(t, "told", fmt.Sprint(again.state.Queue[0]), "SHUTDOWN d, stage off", "its outcome is not known")
		killed = must.Get(os.ReadFile(filepath.Join(again.config.State, journalFile)))(t) // with what is told
	}
	must.Equal(t, "runs", "\n", string(must.Get(os.ReadFile(begun))(t))) //nolint:gosec // a test's
}
