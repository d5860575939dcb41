package release

import (
	"sync"
	"testing"

	"coldaisle.dev/shared/must"
)

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
		if r.play(nil) || c.live()["api"] != "api:1" || c.object("release/lock") != lock {
			t.Errorf("broke a lock that is perhaps held:\n%s", r.log.String())
		}
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
