package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestPagesRun runs each command of the operating pages, in the order in which they stand
// there, and looks at what the project is then.
func TestPagesRun(t *testing.T) {
	t.Parallel()
	const old = "an-old-key-of-more-than-32-bytes-0001"
	// operated is a project in which version 1 runs and 2 is being worked at.
	operated := func() pageState {
		return pageState{
			Version: 2, Secrets: []string{old}, Instances: map[string]string{"coldaisle": "data"}, Protected: map[string]bool{"coldaisle": true}, Restored: map[string]bool{},
			Backups: []backup{{"coldaisle", "yesterday's data"}}, Tables: map[string]string{"sensor_data.readings": "now"},
			Buckets: keptBuckets(t), Bootstrapped: []string{"google_storage_bucket.state"},
		}
	}
	want := func(t *testing.T, want, got any) {
		t.Helper()
		must.Equal(t, "", want, got)
	}
	t.Run("deploy", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t)
		s := runPage(t, c, "deploy", pageState{
			Version: 1, Instances: map[string]string{}, Protected: map[string]bool{}, Tables: map[string]string{}, Buckets: map[string]bool{},
		}, false)
		want(t, numbered(1).live(), c.live())
		executions, _ := c.did()
		want(t, []string{"migrate of " + numbered(1).api + " with api,detect,ingest"}, executions)
		want(t, 1, len(s.Secrets))
		want(t, []string{".", "bootstrap"}, s.Locked)
		want(t, []string{
			"APIs", "Pub/Sub's account", "login", "budgets", "page", "A record", "roles/secretmanager.admin for serviceAccount:service-1@gcp-sa-cloudbuild.iam.gserviceaccount.com",
			"connection", "repository", "trigger", "trigger",
		}, s.Made)
		c.mu.Lock()
		defer c.mu.Unlock()
		want(t, 1, c.smoked)
	})
	t.Run("Upgrade", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		runPage(t, c, "Upgrade", operated(), false)
		want(t, numbered(3).live(), c.live())
		_, history := c.did()
		want(t, []string{"detect detect-00001", "ingest ingest-00001", "api api-00001", "detect detect-00002", "ingest ingest-00002", "api api-00002", "detect detect-00003", "ingest ingest-00003", "api api-00003"}, history)
		want(t, "", c.object("release/lock"))
		byHand := regexp.MustCompile(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$`)
		began := c.object("release/last")
		must.Hold(t, byHand.MatchString(began), "the last release, which is by hand, began at %q", began)
		c.mu.Lock()
		defer c.mu.Unlock()
		if locks := c.noncurrent[bucket+"/release/lock"]; !strings.Contains(string(locks[len(locks)-1].content), "@machine\n") {
			t.Errorf("the lock of a release by hand said %q", locks[len(locks)-1].content)
		}
	})
	t.Run("Roll back", func(t *testing.T) {
		t.Parallel()
		c, folders := released(t, numbered(1))
		c.begin(t, "b1", numbered(2), folders).want(true, numbered(2).live(), nil)
		c.mu.Lock()
		c.objects[project+"-function-archives/ingest/0.zip"] = object{generation: 1, content: []byte("ingest:1")}
		c.mu.Unlock()
		runPage(t, c, "Roll back", operated(), true)
		_, history := c.did()
		// At once, everything, and one function beside the version that was live.
		want(t, []string{"api api-00001", "detect detect-00003", "ingest ingest-00003", "api api-00003", "detect detect-00004", "api api-00004"}, history[6:])
		want(t, version{numbered(2).api, map[string]string{"ingest": "ingest:1", "detect": "detect:2"}}.live(), c.live())
	})
	t.Run("Restore a backup", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		s := runPage(t, c, "Restore a backup", operated(), false)
		want(t, map[string]string{"coldaisle": "yesterday's data"}, s.Instances)
		want(t, []backup{{"coldaisle", "yesterday's data"}, {"coldaisle", "data"}, {"coldaisle-then", "data as of 2026-11-20T11:59:00Z"}}, s.Backups)
		want(t, map[string]string{"sensor_data.readings": "now and now@1795175940000"}, s.Tables)
		before, _ := c.did()
		want(t, 3, len(before)) // the release's, and one for each of two backups
		copies := []string{"export", "copy of the readings"}
		for name := range s.Buckets {
			if name != bucket {
				copies = append(copies, "copy of gs://"+name)
			}
		}
		want(t, slices.Sorted(slices.Values(copies)), slices.Sorted(slices.Values(s.Made)))
	})
	t.Run("Rotate secrets", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		must.Do(t, c.deploy("api", numbered(2).api, "", "api-00001=100")) // of a release that failed
		s := runPage(t, c, "Rotate secrets", operated(), false)
		want(t, numbered(1).live(), c.live())
		if len(s.Secrets) != 4 || !slices.Equal(s.Secrets[:3], []string{"", "", ""}) || strings.Contains(s.Secrets[3], ",") || s.Secrets[3] == old || s.Key != 4 {
			t.Errorf("after a leak the API has version %d of %q", s.Key, s.Secrets)
		}
		want(t, []string{"no key of gateway-hall-1@" + project + ".iam.gserviceaccount.com"}, s.Made)
	})
	t.Run("Tear down", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		s := runPage(t, c, "Tear down", operated(), false)
		want(t, map[string]string{}, c.live())
		want(t, map[string]string{}, s.Instances)
		want(t, map[string]string{}, s.Tables)
		want(t, map[string]bool{}, s.Buckets)
	})
	t.Run("Change a setting", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		before := c.object(statePath)
		runPage(t, c, "Change a setting", operated(), false)
		want(t, numbered(1).live(), c.live())
		want(t, "", c.object("release/lock"))
		if _, history := c.did(); len(history) != 3 || c.object(statePath) == before {
			t.Errorf("deployed %q, state %s: nothing is deployed anew, and the plan is applied", history, c.object(statePath))
		}
	})
	t.Run("Sizes of the database", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		want(t, []string{"archive of alerts"}, runPage(t, c, "Sizes of the database", operated(), false).Made)
	})
	t.Run("Replace Go or PostgreSQL", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		s := runPage(t, c, "Replace Go or PostgreSQL", operated(), false)
		want(t, map[string]string{"coldaisle": "data in POSTGRES_18"}, s.Instances)
		want(t, backup{"coldaisle", "data"}, s.Backups[1])
	})
	t.Run("Pause a function", func(t *testing.T) {
		t.Parallel()
		c, _ := released(t, numbered(1))
		want(t, []string{"", "https://ingest.example.com"}, runPage(t, c, "Pause a function", operated(), false).Pushes)
	})
}

// keptBuckets are the bucket of the state, and those that terraform deletes only when they are empty.
func keptBuckets(t *testing.T) map[string]bool {
	t.Helper()
	kept := map[string]bool{bucket: true}
	for _, module := range found(read(t, "terraform/main.tf"), `(?s)source += "\./modules/models"\n(.*?)\n}`) {
		name := append(found(module, `\n  name += "(\w+)"`), "models")[0]
		kept[project+"-"+name] = true
	}
	must.Equal(t, "buckets", 3, len(kept))
	return kept
}

// commandsOf returns the commands of docs/deploy.md, or of a section of docs/operations.md, for
// a project of the tests, each from its folder.
func commandsOf(t *testing.T, name, folder string) string {
	t.Helper()
	page := read(t, "docs/deploy.md")
	if name != "deploy" {
		_, page, _ = strings.Cut(read(t, "docs/operations.md"), "\n## "+name+"\n")
		page, _, _ = strings.Cut(page, "\n## ")
	}
	blocks := found(page, "(?ms)^ *```sh\n(.*?)^ *```$")
	if len(blocks) == 0 {
		t.Fatal("the page has no commands")
	}
	script := "cd " + folder + "\n" + strings.Join(blocks, "cd "+folder+"\n")
	values := map[string]string{
		"P": project, "R": region, "REVISION": "api-00001", "GOOD": "v1", "LIVE": "v2", "HASH": "0", "GENERATION": "1", "ID": "1", "ID_OF_THE_CLONE": "3", "NUMBER": "1", "KEY": "k", "SITE": "hall-1",
		"ELSEWHERE": "elsewhere", "OWNER": "owner", "REPOSITORY": "repository", "ADDRESS": "192.0.2.1", "ZONE": "zone", "NAME": "name", "FUNCTION": "ingest",
	}
	return regexp.MustCompile(`\b[A-Z_]+\b`).ReplaceAllStringFunc(script, func(word string) string {
		if value, ok := values[word]; ok {
			return value
		}
		return word
	})
}

// runPage runs the commands of a page in the test's cloud with stand-ins for what they call, but for shell, openssl and
// the release's own scripts. After it come those of the release by hand, where the page leads on to it.
func runPage(t *testing.T, c *cloud, name string, s pageState, byHand bool) pageState {
	t.Helper()
	machine := c.machine(t, nil)
	r := c.begin(t, "b8", numbered(s.Version), machine)
	c.mu.Lock()
	for n := range 4 {
		c.components[numbered(n).api] = []string{"detect", "ingest", "api"}
	}
	c.submit = func(n int) bool { return c.begin(t, fmt.Sprintf("b%d", 10+n), numbered(n), machine).play(nil) }
	c.mu.Unlock()
	self := must.Get(standIn())(t)
	terraform, err := filepath.Abs(root + "/terraform")
	state := filepath.Join(t.TempDir(), "state.json")
	encoded, _ := json.Marshal(s)
	folder := t.TempDir()
	standIns := []string{"gcloud", "terraform", "bq", "go", "make", "git"}
	for _, program := range standIns {
		text := fmt.Sprintf("#!/bin/sh\nRELEASE_STAND_IN=page RELEASE_CLOUD=%s exec %s %s \"$@\"\n", c.URL, self, program)
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, program), []byte(text), 0o700))
	}
	for _, program := range append([]string{"cut", "openssl"}, images()[ownMachine]...) {
		if path, lookErr := exec.LookPath(program); lookErr == nil && !slices.Contains(standIns, program) {
			err = errors.Join(err, os.Symlink(path, filepath.Join(folder, program)))
		}
	}
	err = errors.Join(err, os.WriteFile(state, encoded, 0o600), os.MkdirAll(filepath.Join(r.folder, "terraform/bootstrap"), 0o700))
	for _, path := range []string{"terraform/terraform.tfvars.example", "terraform/bootstrap/terraform.tfvars.example"} {
		write(t, r.folder, map[string]string{path: read(t, path)})
	}
	r.answer = "yes\n"
	if name != "deploy" { // which makes it
		err = errors.Join(err, os.WriteFile(filepath.Join(r.folder, "terraform/backend.tf"), nil, 0o600))
	}
	must.Do(t, err)
	script := "#!/usr/bin/env bash\nset -euo pipefail\n" + commandsOf(t, name, r.folder)
	if byHand {
		_, release, _ := strings.Cut(commandsOf(t, "Upgrade", r.folder), "run/tools/release/lock acquire ")
		script += "cd " + r.folder + "\nrun/tools/release/lock acquire " + release
	}
	r.folders = map[string]string{ownMachine: folder}
	r.environ = append(r.environ, "BUILD_ID=", "LOCATION=", "PAGE_STATE="+state, "PAGE_TERRAFORM="+terraform,
		"PAGE_MAKEFILE= "+strings.Join(found(read(t, "Makefile"), `(?m)^([a-z-]+):`), " ")+" ")
	if err := r.run(ownMachine, script); err != nil {
		t.Fatalf("%v\n%s\n%s", err, r.log.String(), script)
	}
	encoded = must.Get(os.ReadFile(state))(t)
	s = pageState{}
	must.Do(t, json.Unmarshal(encoded, &s))
	return s
}
