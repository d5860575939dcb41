// Package release holds the scripts by which cloudbuild.yaml releases the system, and plays releases with them: steps
// in order with the programs of their images, against a cloud of the test's own.
package release

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	second := pipeline("api:2", "ingest:2", "detect:1")
	r := c.begin(t, "b1", second, folders)
	r.want(true, second.live(), nil)
	_, notes, _ := strings.Cut(strings.Split(read(t, "docs/CHANGELOG.md"), "\n## [")[1], "\n")
	r.says("What changes with it:\n" + notes)
	want := []string{
		"migrate of api:1 with api,detect,ingest",
		"migrate expand of api:2 with api,detect,ingest",
		"migrate of api:2 with api,detect,ingest",
	}
	executions, history := c.did()
	must.Equal(t, "migrations", want, executions)
	want = []string{"detect detect-00001", "ingest ingest-00001", "api api-00001", "ingest ingest-00002", "api api-00002"}
	must.Equal(t, "deployments: what has not changed is not deployed again", want, history)
	must.Equal(t, "the newest release began", "2026-11-20T12:00:01.123456Z\n", c.object("release/last"))
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
	newest, _ := notes()
	first, err := notes("0.1.0")
	must.Do(t, err)
	must.Equal(t, "notes of 0.1.0 are those of the newest", false, len(versions) < 2 || first == newest)
	_, err = notes("0.0.9")
	must.Equal(t, "a version that never was has notes", false, err == nil)
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
		both.Go(func() { must.Equal(t, "a release that is deaf succeeds", false, b.play(nil)) })
		b.await("Waiting for another release: build b1 global")
	}})
	both.Wait()
	must.Equal(t, "the first release succeeds:\n"+a.log.String(), true, first)
	must.Equal(t, "what serves after the second release:\n"+b.log.String(), good.live(), c.live())
	b.says("api: rolled back to api-00002=100.")
	must.Equal(t, "lock", "", c.object("release/lock"))
}

// TestStalePlanChangesNothing has somebody apply by hand, without the lock, between a release's plan and its apply.
// Terraform refuses the plan. The release has changed nothing, so there is nothing that it may take back.
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
			"run/tools/release/plan "+project+" "+region+"\nrun/tools/release/apply-plan"); err != nil {
			t.Fatal(err, byHand.log.String())
		}
	}})
	r.says("Saved plan is stale", "API and functions were not changed.")
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
	must.Equal(t, "the new component has rights in the database", true, c.users["escalate"])
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

// TestSettingDuringAnIncident applies a setting with the image and archives that are live, as TestPagesRun does by the
// page: requests stay where somebody pinned them, and nothing is applied that is not wanted.
func TestSettingDuringAnIncident(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, answer string) (*cloud, *release) {
		t.Helper()
		c, folders := released(t, first)
		r := c.begin(t, "b1", pipeline("api:9-of-the-branch", "ingest:9", "detect:9"), folders)
		r.environ = append(r.environ, "BUILD_ID=", "LOCATION=")
		r.answer = answer
		return c, r
	}
	const apply = "run/tools/release/apply " + project + " " + region
	refused := func(t *testing.T, c *cloud, r *release, why string) {
		t.Helper()
		before := c.object(statePath)
		err := r.run(ownMachine, "#!/usr/bin/env bash\n"+apply)
		must.Hold(t, err != nil, "it is applied:\n%s", r.log.String())
		must.Equal(t, "state and lock", []string{before, ""}, []string{c.object(statePath), c.object("release/lock")})
		r.says(why)
	}
	t.Run("pinned after a roll-back", func(t *testing.T) {
		t.Parallel()
		c, r := begin(t, "yes\n")
		second := pipeline("api:2", "ingest:1", "detect:1")
		c.begin(t, "b0", second, r.folders).want(true, second.live(), nil)
		const pin = "gcloud run services update-traffic api --to-revisions api-00001=100 --project "
		r.does(pin + project + " --region " + region)
		r.does(apply)
		must.Equal(t, "what serves", first.live(), c.live())
		c.mu.Lock()
		defer c.mu.Unlock()
		api := c.services["api"]
		must.Equal(t, "image, and where requests go", [2]string{"api:1", "api-00001"}, [2]string{api.image, api.pinned})
		r.says("Requests stay at api-00001")
	})
	t.Run("a function that was rolled back", func(t *testing.T) {
		t.Parallel()
		c, r := begin(t, "yes\n")
		second := pipeline("api:2", "ingest:2", "detect:1")
		c.begin(t, "b0", second, r.folders).want(true, second.live(), nil)
		r.does("gcloud run services update-traffic ingest --to-revisions ingest-00001=100 --project " + project + " --region " + region)
		refused(t, c, r, "ingest serves ingest-00001")
	})
	t.Run("not wanted", func(t *testing.T) {
		t.Parallel()
		c, r := begin(t, "y\n")
		refused(t, c, r, "Nothing is applied.")
	})
}

// TestBilling has functions billed by instance, which a later deployment keeps, and by request
// again. What is as it should be is not deployed anew.
func TestBilling(t *testing.T) {
	t.Parallel()
	c, folders := released(t, first)
	second := pipeline("api:2", "ingest:2", "detect:1")
	for i, step := range []struct {
		billing string
		want    []string // revisions of ingest and detect
	}{
		{"ingest=instance detect=request", []string{"ingest-00003", "detect-00001"}},
		{"ingest=instance detect=instance", []string{"ingest-00003", "detect-00002"}},
		{"ingest=request detect=instance", []string{"ingest-00004", "detect-00002"}},
	} {
		r := c.begin(t, fmt.Sprintf("b%d", i+1), second, folders)
		r.environ = append(r.environ, "BILLING="+step.billing)
		r.want(true, second.live(), nil)
		c.mu.Lock()
		must.Equal(t, step.billing, step.want, []string{c.services["ingest"].ready, c.services["detect"].ready})
		c.mu.Unlock()
	}
}

// TestChecked hands pages over to the release of the same sources, and to no other.
func TestChecked(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	folders := c.machine(t, nil)
	for _, program := range []string{"find", "xargs", "sha256sum", "cut", "tar", "gzip"} {
		must.Do(t, os.Symlink(tooltest.Program(t, program), filepath.Join(folders[ownMachine], program)))
	}
	workspace := func(source string) *release {
		r := c.begin(t, "b1", first, folders)
		must.Do(t, os.Remove(filepath.Join(r.folder, "run")))
		write(t, r.folder, map[string]string{
			"main.go": source, "run/tools/release/checked": read(t, "run/tools/release/checked"),
			"run/tools/release/generation": read(t, "run/tools/release/generation"), "run/dashboard/site/built/old": "stale", ".git/index": r.folder, "dist/image": r.folder,
		})
		r.environ = append(r.environ, "CHECKED_WAIT=0", "CHECKED_POLL=0")
		return r
	}
	checked := func(r *release, verbs ...string) error {
		script := "#!/usr/bin/env bash\nset -euo pipefail\n"
		for _, verb := range verbs {
			script += "run/tools/release/checked " + verb + "\n" //nolint:perfsprint // a few verbs
		}
		return r.run(ownMachine, script)
	}
	built := workspace("package main")
	must.Do(t, checked(built, "fingerprint"))
	write(t, built.folder, map[string]string{"run/dashboard/site/built/index.html": "page", "run/api/pages/site/built/redoc.js": "redoc"})
	must.Do(t, checked(built, "give "+project))

	same := workspace("package main")
	write(t, same.folder, map[string]string{".gitignore": "/bin/", "run/dashboard/src/api/schema.d.ts": "made", "run/dashboard/test-results/last.json": "{}"})
	if err := checked(same, "fingerprint", "take "+project); err != nil {
		t.Fatal(err, same.log.String())
	}
	for path, want := range map[string]string{"run/dashboard/site/built/index.html": "page", "run/api/pages/site/built/redoc.js": "redoc"} {
		must.Equal(t, path, want, string(must.Get(os.ReadFile(filepath.Join(same.folder, path)))(t)))
	}
	other := workspace("package other")
	err := checked(other, "fingerprint", "take "+project)
	must.Equal(t, "pages of other sources are taken:\n"+other.log.String(), false, err == nil)
	other.says("These sources have not passed the checks")
}

// realTools are wrappers of gcloud and terraform that work in the test's cloud, of those that are installed.
func (c *cloud) realTools(t *testing.T) map[string]string {
	t.Helper()
	address := must.Get(url.Parse(c.URL))(t)
	settings := map[string][]string{
		// Google's addresses are left to the proxy, which answers for all of them.
		"gcloud": {
			"CLOUDSDK_CONFIG=" + t.TempDir(), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true", "CLOUDSDK_CORE_DISABLE_PROMPTS=true",
			"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true",
			"CLOUDSDK_PROXY_TYPE=http_no_tunnel", "CLOUDSDK_PROXY_ADDRESS=" + address.Hostname(), "CLOUDSDK_PROXY_PORT=" + address.Port(),
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_RUN=http://run.invalid/", "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD=http://cloudbuild.invalid/",
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=http://pubsub.invalid/", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=http://storage.invalid/storage/v1/", "PATH=" + os.Getenv("PATH"),
		},
		"terraform": {"STORAGE_EMULATOR_HOST=" + c.URL, "GOOGLE_OAUTH_ACCESS_TOKEN=none", "CHECKPOINT_DISABLE=1"},
	}
	tools := map[string]string{}
	for name, environ := range settings {
		if path, err := exec.LookPath(name); err == nil {
			tools[name] = "#!/bin/sh\nexport '" + strings.Join(environ, "' '") + "'\nexec " + path + " \"$@\"\n"
		}
	}
	return tools
}

// TestReleasesWithTheRealTools plays releases with gcloud and terraform themselves,
// as far as they are installed: with gcloud, which takes seconds for a command, at night.
func TestReleasesWithTheRealTools(t *testing.T) {
	t.Parallel()
	// begin is a cloud in which a first version runs, and the programs for a second.
	begin := func(t *testing.T, names ...string) (*cloud, map[string]string) {
		t.Helper()
		if slices.Contains(names, "gcloud") && len(names) > 1 && !tooltest.Nightly() {
			t.Skip("gcloud takes minutes for a release")
		}
		c := newCloud(t)
		tools := c.realTools(t)
		maps.DeleteFunc(tools, func(name, _ string) bool { return !slices.Contains(names, name) })
		if len(tools) == 0 {
			tooltest.Skip(t, "%s not installed", strings.Join(names, " or "))
		}
		quick := maps.Clone(tools)
		delete(quick, "gcloud") // which takes seconds for a command
		c.begin(t, "b0", first, c.machine(t, quick)).want(true, first.live(), nil)
		return c, c.machine(t, tools)
	}

	t.Run("a good release that waits for another", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud", "terraform")
		other := "build b9 global\n2026-11-20T11:00:00Z\n1\n"
		c.put("release/lock", other)
		c.setBuild("b9", "WORKING")
		second := pipeline("api:2", "ingest:2", "detect:1")
		r := c.begin(t, "b1", second, folders)
		var done sync.WaitGroup
		done.Go(func() { r.want(true, second.live(), nil) })
		r.await("Waiting for another release: build b9 global")
		c.remove("release/lock")
		done.Wait()
		must.Equal(t, "the newest release began", "2026-11-20T12:00:01.123456Z\n", c.object("release/last"))
	})

	t.Run("an ill release after a dead one", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud", "terraform")
		c.put("release/lock", "build b9 global\n2026-11-20T11:00:00Z\n1\n")
		c.setBuild("b9", "TIMEOUT")
		second := version{"api:2-ill", map[string]string{"ingest": "ingest:2", "escalate": "escalate:1"}}
		r := c.begin(t, "b1", second, folders)
		r.want(false, map[string]string{"api": "api:1", "ingest": "ingest:1", "escalate": "escalate:1"}, nil)
		r.says("The lock is broken of a build that is over: build b9 global",
			"ingest: rolled back to ingest-00001=100.", "detect: taken away.")
		want := []string{
			"migrate of api:1 with api,detect,ingest",
			"migrate expand of api:2-ill with api,detect,ingest",
			"migrate of api:2-ill with api,escalate,ingest",
		}
		executions, _ := c.did()
		must.Equal(t, "migrations", want, executions)
	})

	t.Run("the lock twice", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud")
		secondLock(t, c, folders)
	})

	t.Run("a stale plan", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "terraform")
		stalePlan(t, c, folders)
	})
}
