// Package modeltest runs the whole system against a small truth.
//
// A script is a list of commands, one a line: somebody registers, creates a sensor, a node sends a reading, a message
// is delivered, twice or late, time passes, an incident is taken. [world] executes it on the gateway, the functions and
// the API, in one process over a real PostgreSQL, with the queue and every clock, the database's included, under the
// test's hand. [model] executes it on a few slices and maps that a person can read, and shares no code with what it
// judges. After every command the answers of the API are those of the model.
//
// Scripts are drawn at random. One that fails is made short, and becomes a named test here.
package modeltest

import (
	"cmp"
	"encoding/json"
	"flag"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/tooltest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// setting begins each script that is drawn, so that it does not begin with nothing.
const setting = `
	register
	register
	room 0
	room 0
	room 1
	sensor 0 0 0
	sensor 0 1 1
	sensor 1 2 0`

// command draws a command.
func command() *rapid.Generator[string] {
	all := verbs()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names = append(names, slices.Repeat([]string{name}, all[name].weight)...)
	}
	return rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom(names).Draw(t, "verb")
		words := []string{name}
		for range all[name].args {
			words = append(words, strconv.Itoa(rapid.IntRange(0, 11).Draw(t, "n")))
		}
		return strings.Join(words, " ")
	})
}

// many is MODEL_SCRIPTS: how many scripts each of two workers draws at night. Each takes some hundred commands.
func many() string { return os.Getenv("MODEL_SCRIPTS") }

// enough is the least number of commands that every change is tried with.
const enough = 20_000

// TestScripts runs scripts that are drawn: by day always the same, at night many others. With the
// race detector they are few.
func TestScripts(t *testing.T) { //nolint:paralleltest // it sets flags
	byDay := "150"
	if tooltest.RaceDetector() {
		byDay = "6"
	}
	checks, seed := cmp.Or(many(), byDay), "32"
	if many() != "" {
		seed = "0"
	}
	for name, value := range map[string]string{
		"checks": checks, "steps": "60", "seed": seed, "nofailfile": "true",
		"shrinktime": cmp.Or(os.Getenv("RAPID_SHRINK"), "60s"), // of TestPlantedBugs
	} {
		must.Do(t, flag.Set("rapid."+name, value))
	}
	var scripts, commands atomic.Int64
	began := time.Now()
	t.Run("of", func(t *testing.T) { //nolint:paralleltest // it waits for those within
		for worker := range 2 {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				s := newSystem(t)
				rapid.Check(t, func(rt *rapid.T) {
					if worker > 0 { // other scripts than its neighbour's
						rapid.Uint64().Draw(rt, "worker")
					}
					commands.Add(draw(t, rt, s, int(scripts.Add(1))))
				})
			})
		}
	})
	t.Logf("%d scripts, %d commands, %.0f a second", scripts.Load(), commands.Load(), float64(commands.Load())/time.Since(began).Seconds())
	must.Hold(t, t.Failed() || tooltest.RaceDetector() || commands.Load() >= enough,
		"%d commands, want %d", commands.Load(), enough)
}

// draw draws a script and runs it. It returns the number of commands.
func draw(t *testing.T, rt *rapid.T, s *system, number int) int64 {
	t.Helper()
	f := &failing{TB: t, rt: rt}
	w := newWorld(f, s, number)
	var script []string
	run := func(line string) {
		script = append(script, line)
		w.run(line)
		if f.failed {
			rt.Fatalf("the script:\n%s", strings.Join(script, "\n"))
		}
	}
	w.setting = true
	for line := range lines(setting) {
		run(line)
	}
	w.setting = false
	rt.Repeat(map[string]func(*rapid.T){"command": func(rt *rapid.T) { run(command().Draw(rt, "line")) }})
	w.thorough = true
	run("drain 0")
	return int64(w.commands)
}

// lines are the commands of a script.
func lines(script string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(script) {
			if line = strings.TrimSpace(line); line != "" && !yield(line) {
				return
			}
		}
	}
}

// failing reports what fails to the script that is drawn.
type failing struct {
	testing.TB

	rt     *rapid.T
	failed bool
}

func (f *failing) Errorf(format string, args ...any) { f.failed = true; f.rt.Logf(format, args...) }
func (f *failing) Error(args ...any)                 { f.failed = true; f.rt.Log(args...) }
func (f *failing) Fatal(args ...any)                 { f.failed = true; f.rt.Fatal(args...) }
func (f *failing) Fatalf(format string, args ...any) { f.failed = true; f.rt.Fatalf(format, args...) }

// TestFound runs scripts that have found a fault.
func TestFound(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	number := 0
	for fault, script := range map[string]string{
		"a limit that is lowered reopens what has ended before": `
			send 0 1 3 0 0
			send 0 1 1 0 0
			drain 0
			pass 1
			pass 1
			threshold 0 2 0
			drain 1`,
	} {
		number++
		w := newWorld(t, s, number)
		w.setting = true
		for line := range lines(setting) {
			w.run(line)
		}
		w.setting, w.thorough = false, true
		for line := range lines(script) {
			w.run(line)
		}
		if t.Failed() {
			t.Fatal(fault)
		}
	}
}

// planted is a bug: in a file, text in place of other text. A test of a package must find it.
type planted struct {
	file, is, becomes string
	pkg, run          string // empty: the scripts
}

// bugs are the kinds of mistakes that interleavings and lost answers bring to light.
func bugs() map[string]planted {
	const scripts, simulated = "./run/local/modeltest TestScripts", "./edge-gateway/gateway TestSimulatedHours"
	at := func(where, file, is, becomes string) planted {
		pkg, run, _ := strings.Cut(where, " ")
		return planted{file, is, becomes, pkg, run}
	}
	return map[string]planted{
		"the tenant dropped from a WHERE": at(scripts, "shared/store/incidents/alerts.go",
			"WHERE customer_id = @customer AND ` + store.SensorIn(", "WHERE @customer::bigint > 0 AND ` + store.SensorIn("),
		"a lock forgotten": at(scripts, "shared/store/incidents/judge.go",
			"WHERE channel = @channel AND node_id = @node\n\t\t\tFOR NO KEY UPDATE`", "WHERE channel = @channel AND node_id = @node`"),
		"judged by arrival": at(scripts, "shared/store/incidents/judgewrites.go",
			"if past || before.Settled() || !next {", "if false && !next {"),
		"acknowledged before the commit": at(scripts, "functions/ingest/ingest.go",
			"stored.err); err != nil {", "stored.err); errors.Is(err, readings.ErrRowRefused) {"),
		"a duplicate counted twice": at(scripts, "shared/store/incidents/alerts.go",
			"AND message_id = @message_id::varchar AND alert_type", "AND message_id = 'no' || @message_id::varchar AND alert_type"),
		"off by one in a hold": at(scripts, "shared/store/incidents/alerts.go",
			"visible_from <= @timestamp::timestamptz AND visible_until > @timestamp::timestamptz", "visible_from < @timestamp::timestamptz AND visible_until > @timestamp::timestamptz"),
		"a wake-up lost in coalescing": at(scripts, "shared/coalesce/coalesce.go",
			"g.inFlight--\n\tg.startWaiting()", "g.inFlight--"),
		"a cursor written before the action": at(simulated, "edge-gateway/gateway/drain.go",
			"sent := d.publish(ctx, messages)", "d.consume(ctx, messages)\n\tsent := d.publish(ctx, messages)"),
		"a stale rule after a change": at(scripts, "shared/sensorcache/sensorcache.go",
			"MaxAge = 10 * time.Second", "MaxAge = 10 * time.Hour"),
		"silence blamed during an outage": at(scripts, "shared/incident/silence.go",
			"return p.Lateness(now) > MaxProbeLateness", "return false"),
	}
}

// TestPlantedBugs plants each bug alone and wants it found, at night. By day it checks that each could be planted.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	root := must.Get(filepath.Abs("../../.."))(t)
	for name, bug := range bugs() { //nolint:paralleltest // each takes all cores
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(root, bug.file)
			source := string(must.Get(os.ReadFile(file))(t))
			if n := strings.Count(source, bug.is); n != 1 {
				t.Fatalf("%s has %q %d times", bug.file, bug.is, n)
			}
			if many() == "" {
				return
			}
			folder := t.TempDir()
			changed, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
			must.Do(t, os.WriteFile(changed, []byte(strings.Replace(source, bug.is, bug.becomes, 1)), 0o600))
			must.Do(t, os.WriteFile(overlay, must.Get(json.Marshal(map[string]any{"Replace": map[string]string{file: changed}}))(t), 0o600))
			test := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-run", "^"+bug.run+"$", bug.pkg)
			test.Dir = root
			test.Env = append(os.Environ(), "MODEL_SCRIPTS=", "RAPID_SHRINK=0s") // found as in CI, and not made short
			output, err := test.CombinedOutput()
			if err == nil {
				t.Errorf("nobody found it:\n%s", output)
			} else if !strings.Contains(string(output), "--- FAIL: "+bug.run) {
				t.Errorf("it does not build, or no test failed:\n%s", output)
			}
		})
	}
}
