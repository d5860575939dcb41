package modeltest

import (
	"cmp"
	"flag"
	"iter"
	"maps"
	"os"
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

// many is MODEL_SCRIPTS: how many scripts each of two workers draws at night. Each takes some
// hundred commands.
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
	if !t.Failed() && !tooltest.RaceDetector() && commands.Load() < enough {
		t.Errorf("%d commands, want %d", commands.Load(), enough)
	}
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
