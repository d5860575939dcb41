package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/deployed"
	"coldaisle.dev/shared/function"
)

// TestSettingsAreThoseOfTerraform compares the variables that terraform sets
// with those that the functions read.
func TestSettingsAreThoseOfTerraform(t *testing.T) {
	t.Parallel()
	parts, err := deployed.Read(filepath.Join(root, "terraform"), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]any{
		"ingest": &struct {
			function.Common
			ingest.Config
		}{},
		"detect": &struct {
			function.Common
			detect.Config
		}{},
		"storealert": &struct {
			function.Common
			storealert.Config
		}{},
		"train": &struct {
			function.Common
			train.Config
		}{},
	} {
		lines, err := deployed.Differences(parts[name], settings)
		if err != nil || len(lines) != 0 {
			t.Errorf("%s: %s, %v", name, strings.Join(lines, "; "), err)
		}
	}
}

// app is what the buildpack calls the module that it makes around a function.
const app = "functions.local/app"

// start is the program that the buildpack generates, less what it does with
// ports: it imports the package at the function's root for what its init
// registers.
const start = `package main

import (
	"log"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "coldaisle.dev"
)

func main() {
	if err := funcframework.Start(os.Getenv("PORT")); err != nil {
		log.Fatal(err)
	}
}
`

// buildpack repeats what Google's Go buildpack does with a function's archive:
// the sources go into a folder of their own, a module around them replaces the
// function's by that folder, and its main imports the function's root package.
func buildpack(t *testing.T, archive []byte) string {
	t.Helper()
	work := t.TempDir()
	source := filepath.Join(work, "serverless_function_source_code")
	unpack(t, archive, source)
	step := func(folder string, words ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", words...)
		c.Dir = folder
		c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		output, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, output)
		}
		return strings.TrimSpace(string(output))
	}
	own := step(source, "list", "-m")
	if first, _, _ := strings.Cut(own, "/"); !strings.Contains(first, ".") {
		t.Fatalf("module %s: the buildpack wants a dot in its first element", own)
	}
	if packages := step(source, "list", "-f", "{{.ImportPath}}", "."); packages != own {
		t.Fatalf("at the root is %s, want the package of module %s", packages, own)
	}
	if err := write(work, map[string][]byte{"main.go": []byte(start)}); err != nil {
		t.Fatal(err)
	}
	step(work, "mod", "init", app)
	step(work, "mod", "edit", "-require", own+"@v0.0.0", "-replace", own+"@v0.0.0="+source)
	step(work, "mod", "tidy")
	versions := func(folder string) map[string]string {
		found := map[string]string{}
		for line := range strings.Lines(step(folder, "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".")) {
			if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok && path != own && path != app {
				found[path] = version
			}
		}
		return found
	}
	inside := versions(source)
	for path, version := range versions(work) {
		if own, ok := inside[path]; ok && own != version {
			t.Errorf("%s is built in version %s, not in %s that was tested", path, version, own)
		}
	}
	program := filepath.Join(work, "program")
	step(work, "build", "-o", program, ".")
	return program
}

// TestFunctionsStartAsDeployed assembles each function's archive, builds it as
// the buildpack does, starts it with the environment that terraform gives it and
// sees a message through.
func TestFunctionsStartAsDeployed(t *testing.T) {
	t.Parallel()
	names, err := functions(root)
	if err != nil {
		t.Fatal(err)
	}
	scenes := map[string]func(*testing.T, *plant){"ingest": ingests, "detect": detects, "storealert": storesAlerts, "train": trains}
	for name := range maps.Keys(scenes) {
		if !slices.Contains(names, name) {
			t.Errorf("%s has no entrypoint", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene, ok := scenes[name]
			if !ok {
				t.Fatal("no scene shows that it works")
			}
			scene(t, newPlant(t, name))
		})
	}
}
