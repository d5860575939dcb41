package main

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

// TestDiagramIsCurrent holds docs/design.md to the imports of now.
func TestDiagramIsCurrent(t *testing.T) {
	t.Parallel()
	packages, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := readLayers(root)
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(root + "/docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := replace(string(document), diagram(packages, layers))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(document)); diff != "" {
		t.Errorf("run go run ./run/tools/packages (-now +document):\n%s", diff)
	}
}

// TestEveryFolderIsInOneLayer wants each package under exactly one of the import
// rule's layers, so that a new one cannot import what it likes.
func TestEveryFolderIsInOneLayer(t *testing.T) {
	t.Parallel()
	packages, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := readLayers(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 60 {
		t.Errorf("%d packages are found: some are not seen", len(packages))
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		if in := layersOf(folder, layers); len(in) != 1 {
			t.Errorf("%s is in the layers %q of .golangci.yml, not in one", folder, in)
		}
	}
	for _, elsewhere := range []string{"shared/newcomer", "run/newcomer", "newcomer"} {
		if in := layersOf(elsewhere, layers); len(in) != 0 {
			t.Errorf("%s is in layers %q, which do not know it", elsewhere, in)
		}
	}
}

func TestDiagram(t *testing.T) {
	t.Parallel()
	layers := []layer{{name: "domain"}, {name: "programs"}, {name: "tools"}}
	layers[0].files = append(layers[0].files, expression("**/shared/{alert,reading}/*.go"))
	layers[1].files = append(layers[1].files, expression("**/run/{api,server}/**"))
	layers[2].files = append(layers[2].files, expression("**/run/tools/**"))
	got := diagram(map[string][]string{
		"shared/alert":     {"shared/reading"},
		"shared/reading":   nil,
		"run/api":          {"shared/reading"},
		"run/api/auth":     {"run/api", "shared/alert"},
		"run/server":       {"run/api", "shared/alert"},
		"run/tools/packer": {"run/server"},
	}, layers)
	const want = "```mermaid\nflowchart TD\n" +
		"  subgraph programs\n    run_api[run/api]\n    run_server[run/server]\n  end\n" +
		"  subgraph domain\n    shared_alert[shared/alert]\n    shared_reading[shared/reading]\n  end\n" +
		"  run_api --> shared_alert\n" +
		"  run_server --> run_api\n" +
		"  shared_alert --> shared_reading\n```\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	got, err := replace("a\n"+begin+"old\n"+end+"\nb\n", "new\n")
	if want := "a\n" + begin + "new\n" + end + "\nb\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	for _, document := range []string{"", begin, end} {
		if _, err := replace(document, "new"); err == nil {
			t.Errorf("%q has no place for a diagram", document)
		}
	}
}
