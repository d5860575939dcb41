package release

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/must"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	second := pipeline("api:2", "ingest:2", "detect:1")
	r := c.begin(t, "b1", second, folders)
	r.want(true, second.live(), nil)
	_, notes, _ := strings.Cut(read(t, "docs/CHANGELOG.md"), "## [Unreleased]\n")
	notes, _, _ = strings.Cut(notes, "\n## [")
	r.says("What changes with it:\n" + notes)
	want := []string{
		"migrate of api:1 with api,detect,ingest",
		"migrate expand of api:2 with api,detect,ingest",
		"migrate of api:2 with api,detect,ingest",
	}
	executions, history := c.did()
	must.Equal(t, "migrations", want, executions)
	if want := []string{"detect detect-00001", "ingest ingest-00001", "api api-00001", "ingest ingest-00002", "api api-00002"}; !slices.Equal(want, history) {
		t.Errorf("deployed %q, want %q: what has not changed is not deployed again", history, want)
	}
}

// TestNotes wants the notes of each version that the changelog has, and no others.
func TestNotes(t *testing.T) {
	t.Parallel()
	notes := func(arguments ...string) (string, error) {
		output, err := exec.CommandContext(t.Context(), "./notes", arguments...).Output()
		return string(output), err
	}
	versions := found(read(t, "docs/CHANGELOG.md"), `(?m)^## \[(.*?)\]`)
	for _, version := range versions {
		if got, err := notes(version); err != nil || !strings.Contains(got, "\n### Added\n") || strings.Contains(got, "\n## ") {
			t.Errorf("%s: %v\n%s", version, err, got)
		}
	}
	unreleased, _ := notes()
	if first, err := notes("0.1.0"); len(versions) < 2 || err != nil || first == unreleased {
		t.Errorf("of %q: %v\n%s", versions, err, first)
	}
	if got, err := notes("0.0.9"); err == nil {
		t.Errorf("notes of a version that never was: %s", got)
	}
}

// TestOverlappingReleases has a second release begin while the first one applies,
// and fail. It goes back to the first one, not to what was before that.
func TestOverlappingReleases(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	good, bad := pipeline("api:2", "ingest:2", "detect:1"), pipeline("api:3-deaf", "ingest:3", "detect:3")
	a, b := c.begin(t, "b1", good, folders), c.begin(t, "b2", bad, folders)
	var both sync.WaitGroup
	// What serves and the lock are looked at after both: b begins when a gives the lock back.
	first := a.play(map[string]func(){"migrate": func() {
		both.Go(func() {
			if b.play(nil) {
				t.Error("a release that is deaf succeeded")
			}
		})
		b.await("Waiting for another release: build b1 global")
	}})
	both.Wait()
	if !first {
		t.Errorf("the first release failed:\n%s", a.log.String())
	}
	if diff := cmp.Diff(good.live(), c.live()); diff != "" {
		t.Errorf("the second release took the first one back (-want +got):\n%s\n%s", diff, b.log.String())
	}
	b.says("api: rolled back to api-00002=100.")
	if lock := c.object("release/lock"); lock != "" {
		t.Errorf("lock %q", lock)
	}
}

// TestReleasesInARow has each release find the objects of the ones before it, of which the
// bucket keeps every version.
func TestReleasesInARow(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	for _, n := range []string{"2", "3"} {
		v := pipeline("api:"+n, "ingest:"+n, "detect:"+n)
		c.begin(t, "b"+n, v, folders).want(true, v.live(), nil)
	}
	if last := c.object("release/last"); last != "2026-11-20T12:00:03.123456Z\n" {
		t.Errorf("the newest release began %q", last)
	}
}

// TestStalePlanChangesNothing has somebody apply by hand, without the lock, between
// a release's plan and its apply. Terraform refuses the plan. The release has changed
// nothing, so there is nothing that it may take back.
func TestStalePlanChangesNothing(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	stalePlan(t, c, folders)
}

func stalePlan(t *testing.T, c *cloud, folders map[string]string) {
	t.Helper()
	other := pipeline("api:2", "ingest:2", "detect:1")
	r := c.begin(t, "b1", pipeline("api:3", "ingest:3", "detect:3"), folders)
	r.want(false, other.live(), map[string]func(){"apply": func() {
		byHand := c.begin(t, "b2", other, folders)
		if err := byHand.run("hashicorp/terraform", "#!/bin/sh\nset -e\nmkdir -p dist/release\ntouch dist/release/before dist/release/expanded\n"+
			"run/tools/release/plan "+project+" "+region+"\nrun/tools/release/apply"); err != nil {
			t.Fatal(err, byHand.log.String())
		}
	}})
	r.says("Saved plan is stale")
	r.says("API and functions were not changed.")
}

// TestComponentsComeAndGo adds a component, which needs rights as a user whom the apply makes,
// and takes one away, whom the new program does not know.
func TestComponentsComeAndGo(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	v := version{"api:2", map[string]string{"ingest": "ingest:1", "escalate": "escalate:1"}}
	c.begin(t, "b1", v, folders).want(true, v.live(), nil)
	want := []string{
		"migrate of api:1 with api,detect,ingest",
		"migrate expand of api:2 with api,detect,ingest",
		"migrate of api:2 with api,escalate,ingest",
	}
	executions, _ := c.did()
	must.Equal(t, "migrations", want, executions)
	c.mu.Lock()
	if !c.users["escalate"] {
		t.Error("the new component has no rights in the database")
	}
	c.mu.Unlock()

	// A component cannot be rolled back to a revision that is gone.
	r := c.begin(t, "b2", version{"api:3-ill", map[string]string{"ingest": "ingest:1"}}, folders)
	r.want(false, map[string]string{"api": "api:2", "ingest": "ingest:1"}, nil)
	r.says("escalate: taken away. Only a release of the version before brings it back.")
}

// TestOlderReleaseComesTooLate has the lock go to a release that began earlier than
// the one that is live: of several that wait, any may get it.
func TestOlderReleaseComesTooLate(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	newer := pipeline("api:3", "ingest:3", "detect:3")
	c.begin(t, "b2", newer, folders).want(true, newer.live(), nil)
	r := c.begin(t, "b1", pipeline("api:2", "ingest:2", "detect:2"), folders)
	r.want(false, newer.live(), nil)
	r.says("A release that began later is live")
}

// TestByHand follows docs/operations.md, on a machine where all tools are at hand.
func TestByHand(t *testing.T) {
	t.Parallel()
	commands := found(read(t, "docs/operations.md"), "(?s)```sh\n(run/tools/release/lock acquire .*?)```")
	if len(commands) != 1 {
		t.Fatalf("%d releases by hand", len(commands))
	}
	script := "#!/usr/bin/env bash\nset -euo pipefail\n" + strings.NewReplacer(" P", " "+project, " R", " "+region).Replace(commands[0])
	c, folders := released(t, first)
	second := pipeline("api:2", "ingest:2", "detect:1")
	r := c.begin(t, "b1", second, folders)
	r.environ = append(r.environ, "BUILD_ID=", "LOCATION=")
	if err := r.run(ownMachine, script); err != nil {
		t.Fatal(err, r.log.String())
	}
	must.Equal(t, "", second.live(), c.live())
	r.says("@machine")
	if lock, last := c.object("release/lock"), c.object("release/last"); lock != "" || !regexp.MustCompile(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$`).MatchString(last) {
		t.Errorf("lock %q, last %q", lock, last)
	}
}
