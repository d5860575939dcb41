package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/must"
)

// TestConfigsMatchTerraform compares the variables that terraform sets
// with those that the functions read.
func TestConfigsMatchTerraform(t *testing.T) {
	t.Parallel()
	components := must.Get(tfenv.Read(filepath.Join(root, "terraform"), ""))(t)
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
		lines, err := tfenv.Mismatches(components[name], settings)
		if err != nil || len(lines) != 0 {
			t.Errorf("%s: %s, %v", name, strings.Join(lines, "; "), err)
		}
	}
}

// TestFunctionsStartAsDeployed assembles each function's archive, builds it as
// the buildpack does, starts it with the environment that terraform and Cloud
// Run functions give it and sees a message through.
func TestFunctionsStartAsDeployed(t *testing.T) {
	t.Parallel()
	names := must.Get(functionNames(root))(t)
	scenes := map[string]func(*testing.T, *fixture){"ingest": ingests, "detect": detects, "storealert": storesAlerts, "train": trains}
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
			scene(t, newFixture(t, name))
		})
	}
}
