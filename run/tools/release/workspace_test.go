package release

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/tooltest"
)

// standIns are the programs that this test's own binary can be instead, by the
// name in the variable RELEASE_STAND_IN.
func standIns() map[string]func([]string) error {
	return map[string]func([]string) error{"gcloud": runGcloud, "terraform": runTerraform, "deploy": deploy, "page": page}
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
	usual := []string{"cat", "cp", "date", "dirname", "env", "grep", "mkdir", "mv", "od", "rm", "sed", "sh", "sleep", "sort", "tee", "touch", "tr", "whoami"}
	return map[string][]string{
		"hashicorp/terraform":                             append([]string{"terraform", "deploy"}, usual...),
		"gcr.io/google.com/cloudsdktool/google-cloud-cli": append([]string{"gcloud", "bash", "awk", "curl"}, usual...),
		"golang":   append([]string{"bash", "awk", "curl"}, usual...),
		ownMachine: append([]string{"terraform", "deploy", "gcloud", "bash", "awk", "curl"}, usual...),
	}
}

// machine makes a folder for each image with its programs. tools are real programs
// by name; the others of the scripts' tools are stand-ins.
func (c *cloud) machine(t *testing.T, tools map[string]string) map[string]string {
	t.Helper()
	self, err := os.Executable()
	must.Do(t, err)
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
			} else {
				err = os.Symlink(tooltest.Program(t, program), path)
			}
			must.Do(t, err)
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

// first is the version that most tests begin with.
var first = pipeline("api:1", "ingest:1", "detect:1")

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

	log logtest.Buffer
}

// begin makes the workspace of a build as it is after its archives.
func (c *cloud) begin(t *testing.T, id string, v version, folders map[string]string) *release {
	t.Helper()
	r := &release{t: t, cloud: c, id: id, folder: t.TempDir(), folders: folders}
	must.Do(t, os.CopyFS(filepath.Join(r.folder, "terraform"), os.DirFS("testdata/terraform")))
	scripts := must.Get(filepath.Abs("../.."))(t)
	functions := must.Get(json.Marshal(v.functions))(t)
	must.Do(t, os.Symlink(scripts, filepath.Join(r.folder, "run")))
	write(t, r.folder, map[string]string{"dist/image": v.api + "\n", "terraform/functions.json": string(functions), "terraform/uri": c.URL})
	c.setBuild(id, "WORKING")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.components[v.api] = append(slices.Sorted(maps.Keys(v.functions)), "api")
	r.environ = []string{
		"PROJECT_ID=" + project, "_REGION=" + region, "BUILD_ID=" + id, "LOCATION=global", "HOME=" + r.folder, "HOSTNAME=machine",
		"TF_IN_AUTOMATION=1", "TF_INPUT=0", "SMOKE_RETRIES=0", "SYNTHETIC_WAIT=2", "LOCK_POLL=0.05", "LOCK_WAIT=600",
	}
	return r
}

// run runs a script with an image's programs.
func (r *release) run(image, script string) error {
	first, _, _ := strings.Cut(script, "\n")
	interpreter := first[strings.LastIndexAny(first, "/ ")+1:]
	c := exec.CommandContext(r.t.Context(), filepath.Join(r.folders[image], interpreter), "-c", script)
	c.Dir, c.Stdout, c.Stderr = r.folder, &r.log, &r.log
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
		_, _ = fmt.Fprintf(&r.log, "--- %s\n", s.ID)
		if err := r.run(image, s.Script); err != nil {
			_, _ = fmt.Fprintf(&r.log, "--- %s: %v\n", s.ID, err)
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
		r.t.Errorf("build %s succeeded: %t, want %t\n%s", r.id, got, good, r.log.String())
	}
	if diff := cmp.Diff(live, r.cloud.live()); diff != "" {
		r.t.Errorf("after build %s (-want +got):\n%s\n%s", r.id, diff, r.log.String())
	}
	if lock := r.cloud.object("release/lock"); lock != "" {
		r.t.Errorf("after build %s the lock is held: %s\n%s", r.id, lock, r.log.String())
	}
}

// says wants a text in the build's log.
func (r *release) says(text string) {
	r.t.Helper()
	if !strings.Contains(r.log.String(), text) {
		r.t.Errorf("build %s says nothing of %q:\n%s", r.id, text, r.log.String())
	}
}

// await waits until the log has a text.
func (r *release) await(text string) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(r.log.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("build %s says nothing of %q:\n%s", r.id, text, r.log.String())
		}
	}
}

// firstReleases make the cloud in which a version was released, once each.
var firstReleases sync.Map

// released is a cloud in which a version runs, and its programs by image.
func released(t *testing.T, v version) (*cloud, map[string]string) {
	t.Helper()
	c := newCloud(t)
	folders := c.machine(t, nil)
	play, _ := firstReleases.LoadOrStore(fmt.Sprint(v), sync.OnceValue(func() contents {
		c.begin(t, "b0", v, folders).want(true, v.live(), nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.clone()
	}))
	once, _ := play.(func() contents)
	contents := once()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contents = contents.clone()
	return c, folders
}
