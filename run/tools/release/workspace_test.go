package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/tooltest"
)

func TestMain(m *testing.M) {
	var err error
	if standInFolder, err = os.MkdirTemp("", "stand-in"); err != nil {
		panic(err)
	}
	status := pgtest.Main(m)
	_ = os.RemoveAll(standInFolder)
	os.Exit(status)
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

// standIn builds the stand-in, once, into a folder that goes after all tests.
var (
	standIn       = sync.OnceValues(buildStandIn)
	standInFolder string
)

// buildStandIn builds the files of this package that are the stand-ins' as a program of their own. Scripts call it
// hundreds of times, and this test's own binary, with the race detector and all that it links, takes a second to start.
func buildStandIn() (string, error) {
	var err error
	files := map[string]string{"go.mod": "module standin\n\ngo 1.26\n"}
	for _, name := range []string{"gcloud", "terraform", "pagestate"} {
		source, readErr := os.ReadFile(name + "_test.go")
		err = errors.Join(err, readErr)
		files[name+".go"] = strings.Replace(string(source), "package release", "package main", 1)
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(standInFolder, name), []byte(text), 0o600))
	}
	program := filepath.Join(standInFolder, "stand-in")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", program, ".")
	build.Dir = standInFolder
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if output, buildErr := build.CombinedOutput(); buildErr != nil {
		err = errors.Join(err, fmt.Errorf("%w\n%s", buildErr, output))
	}
	return program, err
}

// machine makes a folder for each image with its programs. tools are real programs
// by name; the others of the scripts' tools are stand-ins.
func (c *cloud) machine(t *testing.T, tools map[string]string) map[string]string {
	t.Helper()
	self := must.Get(standIn())(t)
	busybox, _ := exec.LookPath("busybox")
	folders := map[string]string{}
	for image, programs := range images() {
		folder := t.TempDir()
		folders[image] = folder
		for _, program := range programs {
			path := filepath.Join(folder, program)
			text, err := "", error(nil)
			if _, ok := standIns()[program]; ok {
				text = fmt.Sprintf("#!/bin/sh\nRELEASE_STAND_IN=%s RELEASE_CLOUD=%s exec %s \"$@\"\n", program, c.URL, self)
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

// release is one build of cloudbuild.yaml in a workspace of its own, from the step on that takes the lock.
type release struct {
	t          *testing.T
	cloud      *cloud
	id, folder string
	folders    map[string]string // of programs, by image
	environ    []string
	answer     string // what a person types

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
	c.Dir, c.Stdin, c.Stdout, c.Stderr = r.folder, strings.NewReader(r.answer), &r.log, &r.log
	c.Env = append([]string{"PATH=" + r.folders[image]}, r.environ...)
	return c.Run()
}

// does runs a command as a person does, which must succeed.
func (r *release) does(command string) {
	r.t.Helper()
	if err := r.run(ownMachine, "#!/usr/bin/env bash\n"+command); err != nil {
		r.t.Fatalf("%s: %v\n%s", command, err, r.log.String())
	}
}

// play does as Cloud Build does: a step that fails ends the build unless it may fail. before are called before the step
// of that name. It reports whether the build succeeded.
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
	got, build := r.play(before), "build "+r.id
	said := "\n" + r.log.String()
	must.Equal(r.t, build+" succeeds"+said, good, got)
	must.Equal(r.t, "what serves after "+build+said, live, r.cloud.live())
	must.Equal(r.t, "the lock after "+build+said, "", r.cloud.object("release/lock"))
}

func (r *release) says(texts ...string) {
	r.t.Helper()
	must.Contain(r.t, "what build "+r.id+" says", r.log.String(), texts...)
}

// await waits until the log has a text.
func (r *release) await(text string) {
	r.t.Helper()
	must.Eventually(r.t, "build "+r.id+" says "+text, func() bool { return strings.Contains(r.log.String(), text) })
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
