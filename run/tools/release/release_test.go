package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/pgtest"
)

// standIns are the programs that this test's own binary can be instead, by the
// name in the variable RELEASE_STAND_IN.
func standIns() map[string]func([]string) error {
	return map[string]func([]string) error{"gcloud": runGcloud, "terraform": runTerraform, "deploy": deploy}
}

func TestMain(m *testing.M) {
	if standIn := standIns()[os.Getenv("RELEASE_STAND_IN")]; standIn != nil {
		if err := standIn(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "ERROR:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Main(m))
}

// ownMachine is a person's, where every tool is at hand.
const ownMachine = "a person's own machine"

// images are the programs that the steps' images have, of those that scripts use.
// The first has busybox's, and a shell that is not bash.
func images() map[string][]string {
	usual := []string{"cat", "cp", "date", "dirname", "env", "grep", "mkdir", "mv", "rm", "sed", "sh", "sleep", "sort", "tee", "touch", "whoami"}
	return map[string][]string{
		"hashicorp/terraform":                             append([]string{"terraform", "deploy"}, usual...),
		"gcr.io/google.com/cloudsdktool/google-cloud-cli": append([]string{"gcloud", "bash", "awk"}, usual...),
		"golang":   append([]string{"bash", "awk", "curl"}, usual...),
		ownMachine: append([]string{"terraform", "deploy", "gcloud", "bash", "awk", "curl"}, usual...),
	}
}

// machine makes a folder for each image with its programs. tools are real programs
// by name; the others of the scripts' tools are stand-ins.
func (c *cloud) machine(t *testing.T, tools map[string]string) map[string]string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	busybox, _ := exec.LookPath("busybox")
	folders := map[string]string{}
	for image, programs := range images() {
		folder := t.TempDir()
		folders[image] = folder
		for _, program := range programs {
			path := filepath.Join(folder, program)
			text := ""
			if _, ok := standIns()[program]; ok {
				// Built with the race detector, a program waits a second before it exits.
				text = fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 RELEASE_STAND_IN=%s RELEASE_CLOUD=%s exec %s \"$@\"\n", program, c.URL, self)
			}
			if real, ok := tools[program]; ok {
				text = real
			}
			if text != "" {
				err = os.WriteFile(path, []byte(text), 0o700)
			} else if image == "hashicorp/terraform" && busybox != "" {
				err = os.Symlink(busybox, path)
			} else if found, lookErr := exec.LookPath(program); lookErr == nil {
				err = os.Symlink(found, path)
			} else if os.Getenv("CI") == "" {
				t.Skip(lookErr)
			} else {
				err = lookErr
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return folders
}

// version is what a release brings: an image of the API and one of each function,
// which is known by its name here.
type version struct {
	api       string
	functions map[string]string
}

// pipeline is a version of ingest and detect with an API.
func pipeline(api, ingest, detect string) version {
	return version{api, map[string]string{"ingest": ingest, "detect": detect}}
}

// live is what serves when the version is released.
func (v version) live() map[string]string {
	live := maps.Clone(v.functions)
	live["api"] = v.api
	return live
}

// release is one build of cloudbuild.yaml in a workspace of its own, from the step
// on that takes the lock.
type release struct {
	t       *testing.T
	cloud   *cloud
	id      string
	folder  string
	folders map[string]string // of programs, by image
	environ []string

	mu  sync.Mutex
	log bytes.Buffer
}

func (r *release) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *release) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// begin makes the workspace of a build as it is after its archives.
func (c *cloud) begin(t *testing.T, id string, v version, folders map[string]string) *release {
	t.Helper()
	r := &release{t: t, cloud: c, id: id, folder: t.TempDir(), folders: folders}
	if err := os.CopyFS(filepath.Join(r.folder, "terraform"), os.DirFS("testdata/terraform")); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	functions, err := json.Marshal(v.functions)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(scripts, filepath.Join(r.folder, "run")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"dist/image": v.api + "\n", "terraform/functions.json": string(functions), "terraform/uri": c.URL} {
		path := filepath.Join(r.folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.setBuild(id, "WORKING")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[v.api] = append(slices.Sorted(maps.Keys(v.functions)), "api")
	r.environ = []string{
		"PROJECT_ID=" + project, "_REGION=" + region, "BUILD_ID=" + id, "LOCATION=global", "HOME=" + r.folder, "HOSTNAME=machine",
		"TF_IN_AUTOMATION=1", "TF_INPUT=0", "SMOKE_RETRIES=0", "LOCK_POLL=0.05", "LOCK_WAIT=600",
	}
	return r
}

// run runs a script with an image's programs.
func (r *release) run(image, script string) error {
	first, _, _ := strings.Cut(script, "\n")
	interpreter := first[strings.LastIndexAny(first, "/ ")+1:]
	c := exec.CommandContext(r.t.Context(), filepath.Join(r.folders[image], interpreter), "-c", script)
	c.Dir, c.Stdout, c.Stderr = r.folder, r, r
	c.Env = append([]string{"PATH=" + r.folders[image]}, r.environ...)
	return c.Run()
}

// play does as Cloud Build does: a step that fails ends the build unless it may
// fail. before are called before the step of that name. It reports whether the
// build succeeded.
func (r *release) play(before map[string]func()) bool {
	r.t.Helper()
	status := "SUCCESS"
	began := false
	for _, s := range parsed(r.t).Steps {
		if began = began || s.ID == "lock"; !began {
			continue
		}
		if f := before[s.ID]; f != nil {
			f()
		}
		image, _, _ := strings.Cut(s.Name, ":")
		if r.folders[image] == "" {
			r.t.Fatalf("step %s: no image %s", s.ID, image)
		}
		_, _ = fmt.Fprintf(r, "--- %s\n", s.ID)
		if err := r.run(image, s.Script); err != nil {
			_, _ = fmt.Fprintf(r, "--- %s: %v\n", s.ID, err)
			if !s.AllowFailure {
				status = "FAILURE"
				break
			}
		}
	}
	r.cloud.setBuild(r.id, status)
	return status == "SUCCESS"
}

// want plays a release and compares what serves then.
func (r *release) want(good bool, live map[string]string, before map[string]func()) {
	r.t.Helper()
	if got := r.play(before); got != good {
		r.t.Errorf("build %s succeeded: %t, want %t\n%s", r.id, got, good, r.output())
	}
	if diff := cmp.Diff(live, r.cloud.live()); diff != "" {
		r.t.Errorf("after build %s (-want +got):\n%s\n%s", r.id, diff, r.output())
	}
	if lock := r.cloud.object("release/lock"); lock != "" {
		r.t.Errorf("after build %s the lock is held: %s\n%s", r.id, lock, r.output())
	}
}

// says wants a text in the build's log.
func (r *release) says(text string) {
	r.t.Helper()
	if !strings.Contains(r.output(), text) {
		r.t.Errorf("build %s says nothing of %q:\n%s", r.id, text, r.output())
	}
}

// await waits until the log has a text.
func (r *release) await(text string) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(r.output(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("build %s says nothing of %q:\n%s", r.id, text, r.output())
		}
	}
}

// released is a cloud in which a version runs, and its programs by image.
func released(t *testing.T, v version) (*cloud, map[string]string) {
	t.Helper()
	c := newCloud(t)
	folders := c.machine(t, nil)
	c.begin(t, "b0", v, folders).want(true, v.live(), nil)
	return c, folders
}

func TestRelease(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	second := pipeline("api:2", "ingest:2", "detect:1")
	c.begin(t, "b1", second, folders).want(true, second.live(), nil)
	want := []string{
		"migrate of api:1 with api,detect,ingest",
		"migrate expand of api:2 with api,detect,ingest",
		"migrate of api:2 with api,detect,ingest",
	}
	executions, history := c.did()
	if diff := cmp.Diff(want, executions); diff != "" {
		t.Errorf("migrations (-want +got):\n%s", diff)
	}
	if want := []string{"detect detect-00001", "ingest ingest-00001", "api api-00001", "ingest ingest-00002", "api api-00002"}; !slices.Equal(want, history) {
		t.Errorf("deployed %q, want %q: what has not changed is not deployed again", history, want)
	}
}

// TestOverlappingReleases has a second release begin while the first one applies,
// and fail. It goes back to the first one, not to what was before that.
func TestOverlappingReleases(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	good, bad := pipeline("api:2", "ingest:2", "detect:1"), pipeline("api:3-ill", "ingest:3", "detect:3")
	a, b := c.begin(t, "b1", good, folders), c.begin(t, "b2", bad, folders)
	var both sync.WaitGroup
	a.want(true, good.live(), map[string]func(){"migrate": func() {
		both.Go(func() {
			if b.play(nil) {
				t.Error("a release that is ill succeeded")
			}
		})
		b.await("Waiting for another release: build b1 global")
	}})
	both.Wait()
	if diff := cmp.Diff(good.live(), c.live()); diff != "" {
		t.Errorf("the second release took the first one back (-want +got):\n%s\n%s", diff, b.output())
	}
	b.says("api: rolled back to api-00002=100.")
	if lock := c.object("release/lock"); lock != "" {
		t.Errorf("lock %q", lock)
	}
}

// TestStalePlanChangesNothing has somebody apply by hand, without the lock, between
// a release's plan and its apply. Terraform refuses the plan. The release has changed
// nothing, so there is nothing that it may take back.
func TestStalePlanChangesNothing(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
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
			t.Fatal(err, byHand.output())
		}
	}})
	r.says("Saved plan is stale")
	r.says("API and functions were not changed.")
}

// TestFailedApply has the API's new revision not start, after a function was
// already replaced.
func TestFailedApply(t *testing.T) {
	t.Parallel()
	first := pipeline("api:1", "ingest:1", "detect:1")
	c, folders := released(t, first)
	r := c.begin(t, "b1", pipeline("api:2-broken", "ingest:2", "detect:1"), folders)
	r.want(false, first.live(), nil)
	r.says("ingest: rolled back to ingest-00001=100.")
	r.says("api: not changed.")
	r.says("detect: not changed.")

	// The next release gets the requests again.
	next := pipeline("api:3", "ingest:3", "detect:1")
	c.begin(t, "b2", next, folders).want(true, next.live(), nil)
}

// TestFailedSmokeTest rolls back what this release has changed and nothing else,
// least of all what somebody has changed since.
func TestFailedSmokeTest(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	r := c.begin(t, "b1", pipeline("api:2-ill", "ingest:2", "detect:1"), folders)
	r.want(false, pipeline("api:1", "hot fix", "detect:1").live(), map[string]func(){"smoke": func() {
		if err := c.deploy("ingest", "hot fix", ""); err != nil {
			t.Error(err)
		}
	}})
	r.says("api: rolled back to api-00001=100.")
	r.says("ingest: left alone. Somebody else has changed it since: ingest-00003=100")
	r.says("detect: not changed.")
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

// TestPartsComeAndGo adds a part, which needs rights as a user whom the apply makes,
// and takes one away, whom the new program does not know.
func TestPartsComeAndGo(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	v := version{"api:2", map[string]string{"ingest": "ingest:1", "escalate": "escalate:1"}}
	c.begin(t, "b1", v, folders).want(true, v.live(), nil)
	want := []string{
		"migrate of api:1 with api,detect,ingest",
		"migrate expand of api:2 with api,detect,ingest",
		"migrate of api:2 with api,escalate,ingest",
	}
	executions, _ := c.did()
	if diff := cmp.Diff(want, executions); diff != "" {
		t.Errorf("migrations (-want +got):\n%s", diff)
	}
	c.mu.Lock()
	if !c.users["escalate"] {
		t.Error("the new part has no rights in the database")
	}
	c.mu.Unlock()

	// A part cannot be rolled back to a revision that is gone.
	r := c.begin(t, "b2", version{"api:3-ill", map[string]string{"ingest": "ingest:1"}}, folders)
	r.want(false, map[string]string{"api": "api:2", "ingest": "ingest:1"}, nil)
	r.says("escalate: taken away. Only a release of the version before brings it back.")
}

// TestFailedMigration ends the release before anything is applied.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	first := pipeline("api:1", "ingest:1", "detect:1")
	c, folders := released(t, first)
	c.mu.Lock()
	delete(c.users, "ingest")
	c.mu.Unlock()
	r := c.begin(t, "b1", pipeline("api:2", "ingest:2", "detect:2"), folders)
	r.want(false, first.live(), nil)
	r.says("failed: no user ingest")
	r.says("API and functions were not changed.")
}

// TestHeldLock waits for a release that lives, not for one that is dead.
func TestHeldLock(t *testing.T) {
	t.Parallel()
	first, second := pipeline("api:1", "ingest:1", "detect:1"), pipeline("api:2", "ingest:2", "detect:2")
	hold := func(c *cloud, owner string) { c.put("release/lock", owner+"\n2026-11-20T12:00:00Z\n1\n") }
	t.Run("by a build that works", func(t *testing.T) {
		t.Parallel()
		c, folders := released(t, first)
		hold(c, "build b4 europe-west1")
		c.setBuild("b4", "WORKING")
		r := c.begin(t, "b1", second, folders)
		r.environ = append(r.environ, "LOCK_WAIT=0")
		if r.play(nil) || c.serves("api") != "api:1" || !strings.HasPrefix(c.object("release/lock"), "build b4") {
			t.Errorf("did not wait: %s", r.output())
		}
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
		c, folders := released(t, first)
		hold(c, "build b4 global")
		c.setBuild("b4", "CANCELLED")
		c.begin(t, "b1", second, folders).want(true, second.live(), nil)
	})
	t.Run("by a build that nobody knows", func(t *testing.T) {
		t.Parallel()
		c, folders := released(t, first)
		hold(c, "build b4 global")
		r := c.begin(t, "b1", second, folders)
		r.environ = append(r.environ, "LOCK_WAIT=0")
		if r.play(nil) || c.object("release/lock") == "" {
			t.Errorf("broke a lock that may be held:\n%s", r.output())
		}
	})
	t.Run("by a person", func(t *testing.T) {
		t.Parallel()
		c, folders := released(t, first)
		hold(c, "anna@laptop")
		r := c.begin(t, "b1", second, folders)
		r.environ = append(r.environ, "LOCK_WAIT=0")
		if r.play(nil) {
			t.Errorf("did not wait:\n%s", r.output())
		}
		r.says("run/tools/release/lock break " + project)
		for _, verb := range []string{"show", "break", "show"} {
			if err := r.run(ownMachine, "#!/usr/bin/env bash\nrun/tools/release/lock "+verb+" "+project); err != nil {
				t.Fatal(err, r.output())
			}
		}
		r.says("anna@laptop\n2026-11-20T12:00:00Z\n1\nanna@laptop\n2026-11-20T12:00:00Z\n1\nNobody has the lock.\n")
		c.begin(t, "b2", second, folders).want(true, second.live(), nil)
	})
}

// TestBrokenLock takes the lock from a release that still runs. It applies nothing
// from then on, and takes nothing back.
func TestBrokenLock(t *testing.T) {
	t.Parallel()
	first, second := pipeline("api:1", "ingest:1", "detect:1"), pipeline("api:2-ill", "ingest:2", "detect:2")
	const other = "anna@laptop\n2026-11-20T12:00:00Z\n1\n"
	for step, live := range map[string]version{"migrate": first, "finish": second} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c, folders := released(t, first)
			r := c.begin(t, "b1", second, folders)
			if r.play(map[string]func(){step: func() { c.put("release/lock", other) }}) {
				t.Error("the release succeeded")
			}
			if diff := cmp.Diff(live.live(), c.live()); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, r.output())
			}
			if c.object("release/lock") != other {
				t.Errorf("gave back another's lock:\n%s", r.output())
			}
			r.says("The lock was taken from this release. It says: anna@laptop")
		})
	}
}

// TestOlderReleaseComesTooLate has the lock go to a release that began earlier than
// the one that is live: of several that wait, any may get it.
func TestOlderReleaseComesTooLate(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	newer := pipeline("api:3", "ingest:3", "detect:3")
	c.begin(t, "b2", newer, folders).want(true, newer.live(), nil)
	r := c.begin(t, "b1", pipeline("api:2", "ingest:2", "detect:2"), folders)
	r.want(false, newer.live(), nil)
	r.says("A release that began later is live")
}

// TestStateIsLocked has somebody else work on terraform's state for a moment.
func TestStateIsLocked(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	second := pipeline("api:2", "ingest:2", "detect:2")
	hold := func() {
		c.put(lockPath, `{"ID":"other"}`)
		time.AfterFunc(300*time.Millisecond, func() { c.remove(lockPath) })
	}
	c.begin(t, "b1", second, folders).want(true, second.live(), map[string]func(){"plan": hold, "apply": hold})
}

// TestByHand follows docs/upgrade.md, on a machine where all tools are at hand.
func TestByHand(t *testing.T) {
	t.Parallel()
	commands := found(read(t, "docs/upgrade.md"), "(?s)```sh\n(run/tools/release/lock acquire .*?)```")
	if len(commands) != 1 {
		t.Fatalf("%d releases by hand", len(commands))
	}
	script := "#!/usr/bin/env bash\nset -euo pipefail\n" + strings.NewReplacer(" P", " "+project, " R", " "+region).Replace(commands[0])
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	second := pipeline("api:2", "ingest:2", "detect:1")
	r := c.begin(t, "b1", second, folders)
	r.environ = append(r.environ, "BUILD_ID=", "LOCATION=")
	if err := r.run(ownMachine, script); err != nil {
		t.Fatal(err, r.output())
	}
	if diff := cmp.Diff(second.live(), c.live()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.says("@machine")
	if lock, last := c.object("release/lock"), c.object("release/last"); lock != "" || !regexp.MustCompile(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$`).MatchString(last) {
		t.Errorf("lock %q, last %q", lock, last)
	}
}

// TestEveryCommandMayFail plays releases of which one command each fails, the first
// one of the first, the second one of the second and so on, as when the network or a
// right is lost. After each either the version before serves or the new one, never a
// mixture, and nobody has the lock, unless giving it back is what failed.
func TestEveryCommandMayFail(t *testing.T) {
	t.Parallel()
	c, folders := released(t, pipeline("api:0", "ingest:0", "detect:0"))
	counter, failing := filepath.Join(t.TempDir(), "commands"), filepath.Join(t.TempDir(), "failing")
	for _, folder := range folders {
		for _, tool := range []string{"gcloud", "terraform"} {
			path := filepath.Join(folder, tool)
			text, err := os.ReadFile(path)
			if err != nil {
				continue // not in this image
			}
			first := fmt.Sprintf("#!/bin/sh\necho \"%[1]s $*\" >>%[2]s\nif [ \"$(sed -n '$=' %[2]s)\" = \"$(cat %[3]s)\" ]; then echo lost >&2; exit 1; fi\n", tool, counter, failing)
			if err := os.WriteFile(path, append([]byte(first), text[len("#!/bin/sh\n"):]...), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	number := 0
	// play releases a version of its own and returns what commands that took.
	play := func(fails int) (r *release, before, after map[string]string, good bool, commands []string) {
		number++
		v := pipeline(fmt.Sprintf("api:%d", number), fmt.Sprintf("ingest:%d", number), fmt.Sprintf("detect:%d", number))
		r, before, after = c.begin(t, fmt.Sprintf("b%d", number), v, folders), c.live(), v.live()
		if err := errors.Join(os.WriteFile(failing, []byte(strconv.Itoa(fails)), 0o600), os.WriteFile(counter, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		good = r.play(nil)
		given, err := os.ReadFile(counter)
		if err != nil {
			t.Fatal(err)
		}
		return r, before, after, good, strings.Split(strings.TrimSpace(string(given)), "\n")
	}
	for fails := 1; ; fails++ {
		r, before, after, good, commands := play(fails)
		if len(commands) < fails {
			if !good {
				t.Errorf("no command failed, and the release did:\n%s", r.output())
			}
			break
		}
		what := commands[fails-1]
		// What comes after the smoke test is notes and the lock.
		late := strings.Contains(what, bucket+"/release/")
		if live := c.live(); !cmp.Equal(live, before) && !cmp.Equal(live, after) || good != cmp.Equal(live, after) && !late {
			t.Errorf("%s failed, the release is good: %t. What serves (-before +now):\n%s\n%s", what, good, cmp.Diff(before, live), r.output())
		}
		if executions, _ := c.did(); good && !slices.Contains(executions, "migrate expand of "+after["api"]+" with api,detect,ingest") {
			t.Errorf("%s failed: good without a migration before the apply\n%s", what, r.output())
		}
		if lock := c.object("release/lock"); lock != "" {
			if good || !late {
				t.Errorf("%s failed: the lock is held\n%s", what, r.output())
			}
			if r, _, _, good, _ := play(0); !good {
				t.Errorf("%s failed, and the next release too:\n%s", what, r.output())
			}
		}
	}
}

// realTools are wrappers of gcloud and terraform that work in the test's cloud, of
// those that are installed.
func (c *cloud) realTools(t *testing.T) map[string]string {
	t.Helper()
	address, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string][]string{
		// Google's addresses are left to the proxy, which answers for all of them.
		"gcloud": {
			"CLOUDSDK_CONFIG=" + t.TempDir(), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true", "CLOUDSDK_CORE_DISABLE_PROMPTS=true",
			"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true",
			"CLOUDSDK_PROXY_TYPE=http_no_tunnel", "CLOUDSDK_PROXY_ADDRESS=" + address.Hostname(), "CLOUDSDK_PROXY_PORT=" + address.Port(),
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_RUN=http://run.invalid/", "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD=http://cloudbuild.invalid/",
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=http://storage.invalid/storage/v1/", "PATH=" + os.Getenv("PATH"),
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
// as far as they are installed.
func TestReleasesWithTheRealTools(t *testing.T) {
	t.Parallel()
	first := pipeline("api:1", "ingest:1", "detect:1")
	// begin is a cloud in which a first version runs, and the programs for a second.
	begin := func(t *testing.T, names ...string) (*cloud, map[string]string) {
		t.Helper()
		c := newCloud(t)
		tools := c.realTools(t)
		maps.DeleteFunc(tools, func(name, _ string) bool { return !slices.Contains(names, name) })
		if len(tools) == 0 {
			t.Skip("not installed")
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
		if last := c.object("release/last"); last != "2026-11-20T12:00:01.123456Z\n" {
			t.Errorf("the newest release began %q", last)
		}
	})

	t.Run("an ill release after a dead one", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud", "terraform")
		c.put("release/lock", "build b9 global\n2026-11-20T11:00:00Z\n1\n")
		c.setBuild("b9", "TIMEOUT")
		second := version{"api:2-ill", map[string]string{"ingest": "ingest:2", "escalate": "escalate:1"}}
		r := c.begin(t, "b1", second, folders)
		r.want(false, map[string]string{"api": "api:1", "ingest": "ingest:1", "escalate": "escalate:1"}, nil)
		r.says("The lock is broken of a build that is over: build b9 global")
		r.says("ingest: rolled back to ingest-00001=100.")
		r.says("detect: taken away.")
		want := []string{
			"migrate of api:1 with api,detect,ingest",
			"migrate expand of api:2-ill with api,detect,ingest",
			"migrate of api:2-ill with api,escalate,ingest",
		}
		executions, _ := c.did()
		if diff := cmp.Diff(want, executions); diff != "" {
			t.Errorf("migrations (-want +got):\n%s", diff)
		}
	})

	t.Run("a stale plan", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "terraform")
		stalePlan(t, c, folders)
	})
}
