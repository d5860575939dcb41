package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestConfigsMatchTerraform compares the variables that terraform sets with those that the functions read.
func TestConfigsMatchTerraform(t *testing.T) {
	t.Parallel()
	components := tfenv.Read(t, filepath.Join(root, "terraform"), "")
	for name, settings := range map[string]any{
		"ingest": &struct {
			function.CommonConfig
			ingest.Config
		}{},
		"detect": &struct {
			function.CommonConfig
			detect.Config
		}{},
		"storealert": &function.CommonConfig{},
		"train": &struct {
			function.CommonConfig
			train.Config
		}{},
	} {
		must.Equal(t, name, []string(nil), tfenv.Mismatches(t, components[name], settings))
	}
}

// TestFunctionsStartAsDeployed starts each function with the environment that terraform and
// Cloud Run functions give it and sees a message through. The program of detect is built of
// its archive as the buildpack does; at night and by .ci/buildpack those of all are.
func TestFunctionsStartAsDeployed(t *testing.T) {
	t.Parallel()
	names := must.Get(functionNames(root))(t)
	scenes := map[string]func(*testing.T, *fixture){"ingest": ingests, "detect": detects, "storealert": storesAlerts, "train": trains}
	for name := range maps.Keys(scenes) {
		must.Equal(t, name+" has an entrypoint", true, slices.Contains(names, name))
	}
	serve := functiontest.Build(t, "coldaisle.dev/functions/serve")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene, ok := scenes[name]
			if !ok {
				t.Fatal("no scene shows that it works")
			}
			program := serve
			if name == "detect" || tooltest.Nightly() || os.Getenv("BUILDPACKS") != "" {
				program = must.Get(buildpack(t.Context(), packed(t, root, name), t.TempDir(), name))(t)
			} else { // the archive has all that it imports
				source := t.TempDir()
				must.Do(t, unpack(packed(t, root, name), source))
				must.Get(toolchain(t.Context(), source, "build", "."))(t)
			}
			scene(t, newFixture(t, program, name))
		})
	}
}
