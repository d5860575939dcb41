package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

const root = "../../../.."

func TestFunctions(t *testing.T) {
	t.Parallel()
	names, err := functionNames(root)
	must.Do(t, err)
	must.Equal(t, "functions", []string{"detect", "ingest", "storealert", "train"}, names)
	for _, name := range names { // the buildpack sees the imports of this file alone
		entry := must.Get(os.ReadFile(filepath.Join(root, "functions", name, entrypoint, "function.go")))(t)
		must.Contain(t, name, string(entry), `"github.com/GoogleCloudPlatform/functions-framework-go/functions"`)
	}
	_, err = functionNames(t.TempDir())
	must.Equal(t, "there are functions in an empty folder", false, err == nil)
}

// packed is a function's archive.
func packed(t *testing.T, root, name string) []byte {
	t.Helper()
	files := must.Get(assemble(t.Context(), root, name))(t)
	return must.Get(pack(files))(t)
}

// unpack writes an archive's files below a folder.
func unpack(archive []byte, folder string) error {
	reader, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	if err := os.CopyFS(folder, reader); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// TestArchiveHoldsImports looks for what must be in an archive and what
// must not.
func TestArchiveHoldsImports(t *testing.T) {
	t.Parallel()
	files := must.Get(assemble(t.Context(), root, "storealert"))(t)
	for _, want := range []string{"function.go", "go.mod", "go.sum", "functions/storealert/storealert.go", "shared/function/function.go", "shared/store/migrations/00001_schema.sql"} {
		must.Equal(t, want+" is in the archive", true, files[want] != nil)
	}
	for name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "functions/") && !strings.HasPrefix(name, "functions/storealert/") ||
			strings.HasPrefix(name, "run/") || strings.HasPrefix(name, "edge-gateway/") || strings.HasPrefix(name, stubFolder+"/") || strings.Contains(name, "bqreadings") {
			t.Errorf("%s is in the archive", name)
		}
	}
	if strings.Contains(string(files["go.mod"]), "danielgtaylor/huma") || !strings.Contains(string(files["go.mod"]), "functions-framework-go") {
		t.Errorf("go.mod is not what the function needs:\n%s", files["go.mod"])
	}
}

// module copies what archives are made of, to be changed by a test.
func module(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, component := range []string{"functions", "shared"} {
		must.Do(t, os.CopyFS(filepath.Join(folder, component), os.DirFS(filepath.Join(root, component))))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		content := must.Get(os.ReadFile(filepath.Join(root, file)))(t)
		must.Do(t, writeFiles(folder, map[string][]byte{file: content}))
	}
	return folder
}

// TestArchiveChangesWithItsFunctionOnly changes one thing after another and
// looks at whose archive differs: those functions would be deployed again.
func TestArchiveChangesWithItsFunctionOnly(t *testing.T) {
	t.Parallel()
	copied := module(t)
	all := func() map[string]string {
		archives := map[string]string{}
		for _, name := range []string{"detect", "ingest", "storealert"} {
			archives[name] = string(packed(t, copied, name))
		}
		return archives
	}
	before := all()
	for _, edit := range []struct {
		files map[string]string // what is added to each
		want  []string
	}{
		{map[string]string{"functions/detect/detect_test.go": "\n// Changed.\n", "shared/pgtest/pgtest.go": "\n// Changed.\n", "go.mod": "\nrequire rsc.io/quote v1.5.2\n"}, nil},
		{map[string]string{"functions/detect/detect.go": "\n// Changed.\n"}, []string{"detect"}},
		{map[string]string{"functions/storealert/entrypoint/function.go": "\n// Changed.\n", "shared/readings/bqreadings/sql/ranges.sql": "-- Changed.\n"}, []string{"ingest", "storealert"}},
		{map[string]string{"shared/push/message.go": "\n// Changed.\n"}, []string{"detect", "ingest", "storealert"}},
	} {
		for file, text := range edit.files {
			path := filepath.Join(copied, filepath.FromSlash(file))
			content, err := os.ReadFile(path)
			must.Do(t, errors.Join(err, os.WriteFile(path, append(content, text...), 0o600)))
		}
		after := all()
		var changed []string
		for name, archive := range after {
			if archive != before[name] {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		must.Equal(t, fmt.Sprint("after ", edit.files), edit.want, changed)
		before = after
	}
}

// TestRun writes the archives that terraform looks for.
func TestRun(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "dist")
	must.Do(t, run(t.Context(), root, out))
	for _, name := range []string{"detect", "ingest", "storealert", "train"} {
		if written, err := os.Stat(filepath.Join(out, name+".zip")); err != nil || written.Size() < 10_000 {
			t.Errorf("%s: %v, %v", name, written, err)
		}
	}
}

// TestErrors names the function and what go says of it.
func TestErrors(t *testing.T) {
	t.Parallel()
	copied := module(t)
	must.Do(t, os.RemoveAll(filepath.Join(copied, "shared", "push")))
	err := run(t.Context(), copied, t.TempDir())
	must.Contain(t, "the error", fmt.Sprint(err), "detect: go list", "shared/push")
}
