package release

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestFailedReleaseLeavesWhatServed plays releases that fail after the first has succeeded, and a good one after each.
func TestFailedReleaseLeavesWhatServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failing version
		without string // the component whose database user is missing
		says    []string
	}{
		"a revision that does not start, after a function was replaced": {
			failing: pipeline("api:2-broken", "ingest:2", "detect:1"),
			says:    []string{"ingest: rolled back to ingest-00001=100.", "api: not changed.", "detect: not changed."},
		},
		"a new revision that is ill at the address of its tag": {
			failing: pipeline("api:2-ill", "ingest:1", "detect:1"), says: []string{"api: not changed."},
		},
		"a release that answers well and raises no alert": {
			failing: pipeline("api:2-deaf", "ingest:2", "detect:1"),
			says: []string{
				"does not come back with its alert after", "api: rolled back to api-00001=100.", "ingest: rolled back to ingest-00001=100.",
			},
		},
		"a migration that fails": {
			failing: pipeline("api:2", "ingest:2", "detect:2"), without: "ingest",
			says: []string{"failed: no user ingest", "API and functions were not changed."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud, folders := released(t, first)
			cloud.mu.Lock()
			delete(cloud.users, c.without)
			cloud.mu.Unlock()
			r := cloud.begin(t, "b1", c.failing, folders)
			r.want(false, first.live(), nil)
			r.says(c.says...)
			if _, history := cloud.did(); !strings.Contains(c.failing.api, "deaf") && slices.Contains(history, "api api-00002") {
				t.Errorf("requests went to the new revision: %q", history)
			}
			if c.without == "" { // the next release gets the requests again
				next := pipeline("api:3", "ingest:3", "detect:1")
				cloud.begin(t, "b2", next, folders).want(true, next.live(), nil)
			}
		})
	}
}

// TestNewMetrics has Google not know a new metric when the alert on it is made: the rest is
// planned and applied again, some times and no more, and only when nothing else failed.
func TestNewMetrics(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	watched := pipeline("api:2", "ingest:2-watched", "detect:2-watched")
	r := c.begin(t, "b1", watched, folders)
	r.environ = append(r.environ, "METRIC_PAUSE=0")
	r.want(true, watched.live(), nil)
	must.Equal(t, r.log.String(), 2, strings.Count(r.log.String(), "Google does not know a new metric yet: the rest is applied in 0 s."))

	r = c.begin(t, "b2", pipeline("api:3", "ingest:3-watched", "detect:3-watched"), folders)
	r.environ = append(r.environ, "METRIC_PAUSE=0", "METRIC_TRIES=2")
	r.want(false, watched.live(), nil)
	r.says("ingest: rolled back", "detect: rolled back")

	r = c.begin(t, "b3", pipeline("api:4-broken", "ingest:4-watched", "detect:2-watched"), folders)
	r.environ = append(r.environ, "METRIC_PAUSE=0")
	r.want(false, watched.live(), nil)
	r.says("ingest: rolled back") // which the first of the applies has changed
}

// TestFailedSmokeTest rolls back what this release has changed and nothing else,
// least of all what somebody has changed since.
func TestFailedSmokeTest(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	r := c.begin(t, "b1", pipeline("api:2-ill", "ingest:2", "detect:1"), folders)
	fix := func(function string) func() {
		return func() { must.Do(t, c.deploy(function, "hot fix of "+function, "", "")) }
	}
	// What this release's apply did not begin to change is not its own, whenever it changed.
	r.want(false, pipeline("api:1", "hot fix of ingest", "hot fix of detect").live(), map[string]func(){"apply": fix("detect"), "smoke": fix("ingest")})
	r.says("api: not changed.", "ingest: left alone. Somebody else has changed it since: ingest-00003=100",
		"detect: not changed.")
}

// TestFirstReleaseFails has nothing to go back to.
func TestFirstReleaseFails(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	v := pipeline("api:1-ill", "ingest:1", "detect:1")
	r := c.begin(t, "b0", v, c.machine(t, nil))
	r.want(false, v.live(), nil)
	r.says("There is none before it to go back to.")
}

// TestEveryCommandMayFail plays releases of which one command each fails, the first one of the first, the second one of
// the second and so on, as when the network or a right is lost. After each either the version before serves or the new
// one, never a mixture, and nobody has the lock, unless giving it back is what failed. Each release makes all calls of
// one: but at night every seventh command fails.
func TestEveryCommandMayFail(t *testing.T) {
	t.Parallel()
	f := newFailing(t, false)
	for fails := 1; f.after(fails); fails += stride() {
	}
}

// stride is how far apart the commands lie that fail.
func stride() int {
	if tooltest.Nightly() {
		return 1
	}
	return 7
}

// TestEveryAnswerMayBeLost does the same with the network lost a moment later: the command
// has changed what it changes, and the release does not hear of it.
func TestEveryAnswerMayBeLost(t *testing.T) {
	t.Parallel()
	f := newFailing(t, true)
	_, _, _, good, commands := f.play(0)
	must.Equal(t, "the release succeeds where no command fails", true, good)
	seen := 0
	for i, command := range commands {
		if regexp.MustCompile(`^(gcloud (storage (cp|rm)|run jobs (update|execute)|run services update-traffic|pubsub topics publish)|terraform apply)\b`).MatchString(command) {
			if seen++; seen%stride() == 1%stride() {
				f.after(i + 1)
			}
		}
	}
	must.Hold(t, seen >= 9, "%d of %d commands change something: some are not seen", seen, len(commands))
}

// failing plays releases in one cloud, each with a command that fails.
type failing struct {
	t                *testing.T
	cloud            *cloud
	folders          map[string]string
	counter, failing string // files: the commands of a release, and the number of that which fails
	number           int
}

// newFailing makes the tools count their calls. The call that fails does nothing, or, with late, what it always does.
func newFailing(t *testing.T, late bool) *failing {
	t.Helper()
	f := &failing{t: t, counter: filepath.Join(t.TempDir(), "commands"), failing: filepath.Join(t.TempDir(), "failing")}
	f.cloud, f.folders = released(t, pipeline("api:0", "ingest:0", "detect:0"))
	for _, folder := range f.folders {
		for _, tool := range []string{"gcloud", "terraform"} {
			path := filepath.Join(folder, tool)
			if _, err := os.Stat(path); err != nil {
				continue // not in this image
			}
			text := fmt.Sprintf("#!/bin/sh\necho \"%[1]s $*\" >>%[2]s\nif [ \"$(sed -n '$=' %[2]s)\" = \"$(cat %[3]s)\" ]; then %[4]t && %[5]s \"$@\"; echo lost >&2; exit 1; fi\nexec %[5]s \"$@\"\n",
				tool, f.counter, f.failing, late, path+".real")
			must.Do(t, errors.Join(os.Rename(path, path+".real"), os.WriteFile(path, []byte(text), 0o700)))
		}
	}
	return f
}

// play releases a version of its own and returns what commands that took.
func (f *failing) play(fails int) (r *release, before, after map[string]string, good bool, commands []string) {
	f.t.Helper()
	f.number++
	v := pipeline(fmt.Sprintf("api:%d", f.number), fmt.Sprintf("ingest:%d", f.number), fmt.Sprintf("detect:%d", f.number))
	r, before, after = f.cloud.begin(f.t, fmt.Sprintf("b%d", f.number), v, f.folders), f.cloud.live(), v.live()
	must.Do(f.t, errors.Join(os.WriteFile(f.failing, []byte(strconv.Itoa(fails)), 0o600), os.WriteFile(f.counter, nil, 0o600)))
	good = r.play(nil)
	given := must.Get(os.ReadFile(f.counter))(f.t)
	return r, before, after, good, strings.Split(strings.TrimSpace(string(given)), "\n")
}

// after plays a release whose command of that number fails, and looks at what serves then.
// It reports whether there was one.
func (f *failing) after(fails int) bool {
	f.t.Helper()
	r, before, after, good, commands := f.play(fails)
	if len(commands) < fails {
		must.Hold(f.t, good, "no command failed, and the release did:\n%s", r.log.String())
		return false
	}
	what := commands[fails-1]
	// What comes after the smoke test is notes and the lock.
	late := strings.Contains(what, bucket+"/release/la") || strings.Contains(what, bucket+"/release/lo")
	if live := f.cloud.live(); !cmp.Equal(live, before) && !cmp.Equal(live, after) || good != cmp.Equal(live, after) && !late {
		f.t.Errorf("%s failed, the release is good: %t. What serves (-before +now):\n%s\n%s", what, good, cmp.Diff(before, live), r.log.String())
	}
	if executions, _ := f.cloud.did(); good && !slices.Contains(executions, "migrate expand of "+after["api"]+" with api,detect,ingest") {
		f.t.Errorf("%s failed: good without a migration before the apply\n%s", what, r.log.String())
	}
	if lock := f.cloud.object("release/lock"); lock != "" {
		must.Hold(f.t, !good && late, "%s failed: the lock is held\n%s", what, r.log.String())
		if r, _, _, good, _ := f.play(0); !good {
			f.t.Errorf("%s failed, and the next release too:\n%s", what, r.log.String())
		}
	}
	return true
}

// TestOtherRegionThanConfigured has the build's project or region differ from those
// of terraform.tfvars, which a -var would override.
func TestOtherRegionThanConfigured(t *testing.T) {
	t.Parallel()
	second := pipeline("api:2", "ingest:2", "detect:2")
	c, folders := released(t, first)
	configured := func(id, text string) *release {
		r := c.begin(t, id, second, folders)
		must.Do(t, os.WriteFile(filepath.Join(r.folder, "terraform/terraform.tfvars"), []byte(text), 0o600))
		return r
	}
	r := configured("b1", "project_id = \""+project+"\"\n  region=\"us-central1\" # chosen\n")
	r.want(false, first.live(), nil)
	r.says("region is us-central1 in terraform/terraform.tfvars and "+region+" in this release: nothing is planned.",
		"API and functions were not changed.")

	r = configured("b2", "project_id = \"another\"\n")
	r.want(false, first.live(), nil)
	r.says("project_id is another in terraform/terraform.tfvars and " + project + " in this release")

	configured("b3", "# region = \"us-central1\"\nproject_id = \""+project+"\"\nregion     = \""+region+"\"\nregion_of_readings = \"EU\"\n").
		want(true, second.live(), nil)
}

// TestHeldLock waits for a release that lives, not for one that is dead.
func TestHeldLock(t *testing.T) {
	t.Parallel()
	second := pipeline("api:2", "ingest:2", "detect:2")
	// held is a cloud whose lock somebody has.
	held := func(t *testing.T, owner string) (*cloud, map[string]string) {
		t.Helper()
		c, folders := released(t, first)
		c.put("release/lock", owner+"\n2026-11-20T12:00:00Z\n1\n")
		return c, folders
	}
	// refused is a release that does not wait.
	refused := func(t *testing.T, c *cloud, folders map[string]string) *release {
		t.Helper()
		lock := c.object("release/lock")
		r := c.begin(t, "b1", second, folders)
		r.environ = append(r.environ, "LOCK_WAIT=0")
		must.Hold(t, !r.play(nil) && c.live()["api"] == "api:1" && c.object("release/lock") == lock,
			"broke a lock that is perhaps held:\n%s", r.log.String())
		return r
	}
	t.Run("by a build that works", func(t *testing.T) {
		t.Parallel()
		c, folders := held(t, "build b4 europe-west1")
		c.setBuild("b4", "WORKING")
		r := refused(t, c, folders)
		r.says("Another release has the lock: build b4 europe-west1, 2026-11-20T12:00:00Z, 1")
		// Until that build is over.
		waiting := c.begin(t, "b2", second, folders)
		var done sync.WaitGroup
		done.Go(func() { waiting.want(true, second.live(), nil) })
		waiting.await("Waiting for another release: build b4")
		c.setBuild("b4", "CANCELLED")
		done.Wait()
		waiting.says("The lock is broken of a build that is over: build b4")
	})
	t.Run("by a build that was cancelled", func(t *testing.T) {
		t.Parallel()
		c, folders := held(t, "build b4 global")
		c.setBuild("b4", "CANCELLED")
		c.begin(t, "b1", second, folders).want(true, second.live(), nil)
	})
	t.Run("by a build that nobody knows", func(t *testing.T) {
		t.Parallel()
		c, folders := held(t, "build b4 global")
		refused(t, c, folders)
	})
	t.Run("by a person", func(t *testing.T) {
		t.Parallel()
		c, folders := held(t, "anna@laptop")
		r := refused(t, c, folders)
		r.says("run/tools/release/lock break " + project)
		for _, verb := range []string{"show", "break", "show"} {
			r.does("run/tools/release/lock " + verb + " " + project)
		}
		r.says("anna@laptop\n2026-11-20T12:00:00Z\n1\nanna@laptop\n2026-11-20T12:00:00Z\n1\nNobody has the lock.\n")
		c.begin(t, "b2", second, folders).want(true, second.live(), nil)
	})
}

// TestBrokenLock takes the lock from a release that still runs. It applies nothing
// from then on, and takes nothing back.
func TestBrokenLock(t *testing.T) {
	t.Parallel()
	second := pipeline("api:2-deaf", "ingest:2", "detect:2")
	const other = "anna@laptop\n2026-11-20T12:00:00Z\n1\n"
	for step, live := range map[string]version{"migrate": first, "finish": second} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c, folders := released(t, first)
			r := c.begin(t, "b1", second, folders)
			good := r.play(map[string]func(){step: func() { c.put("release/lock", other) }})
			must.Equal(t, "the release succeeds", false, good)
			must.Equal(t, r.log.String(), live.live(), c.live())
			must.Equal(t, "another's lock:\n"+r.log.String(), other, c.object("release/lock"))
			r.says("The lock was taken from this release. It says: anna@laptop")
		})
	}
}

// TestStateIsLocked has somebody else work on terraform's state. It is given back when
// terraform has been refused the lock twice.
func TestStateIsLocked(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	second := pipeline("api:2", "ingest:2", "detect:2")
	hold := func() {
		c.put(lockPath, `{"ID":"other"}`)
		refusals := 0
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused = func(key string) {
			if refusals++; refusals == 2 {
				c.retire(key)
			}
		}
	}
	c.begin(t, "b1", second, folders).want(true, second.live(), map[string]func(){"plan": hold, "apply": hold})
	must.Equal(t, "terraform did not ask for the lock", "", c.object(lockPath))
}

// TestSecondLock takes the lock and gives it back twice, and breaks it: each time the
// versioned bucket keeps a version more of it.
func TestSecondLock(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	secondLock(t, c, c.machine(t, nil))
}

func secondLock(t *testing.T, c *cloud, folders map[string]string) {
	t.Helper()
	r := c.begin(t, "b1", first, folders)
	lock := func(verbs ...string) {
		t.Helper()
		for _, verb := range verbs {
			r.does("run/tools/release/lock " + verb + " " + project)
			if held := verb == "acquire" || verb == "check"; held != (c.object("release/lock") != "") {
				t.Fatalf("after %s the lock is %q\n%s", verb, c.object("release/lock"), r.log.String())
			}
		}
	}
	c.put("release/last", "2026-11-20T11:00:00Z\n")
	c.put("release/last", "2026-11-20T12:00:00Z\n")
	lock("acquire", "check", "release", "acquire", "check", "release", "show", "acquire", "break")
	r.says("Nobody has the lock.\nThe lock is ours: build b1 global, 2026-11-20T12:00:01.123456Z.\nbuild b1 global\n")
	// No answer is not the same as nobody.
	c.mu.Lock()
	c.forbidden = true
	c.mu.Unlock()
	for _, verb := range []string{"check", "show", "break", "release"} {
		err := r.run(ownMachine, "#!/usr/bin/env bash\nrun/tools/release/lock "+verb+" "+project)
		must.Equal(t, verb+" succeeds though the bucket refuses", false, err == nil)
	}
	r.says("gs://" + bucket + "/release/lock cannot be read.")
}
