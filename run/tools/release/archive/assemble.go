package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// entrypoint is the folder of a function's registration, below the function's.
const entrypoint = "entrypoint"

// tidying is the folder of a program that stands in for the buildpack's while
// go.mod is tidied, so that the versions of what it imports stay ours.
const tidying = "main"

// program is what the buildpack's main imports, less what it does with it.
const program = `package main

import (
	_ "github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

func main() {}
`

// functions are the names of all functions: the folders that have an entrypoint.
func functions(root string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, "functions", "*", entrypoint))
	if err != nil {
		return nil, fmt.Errorf("look for functions: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no function has a folder %s below %s", entrypoint, filepath.Join(root, "functions"))
	}
	names := make([]string, len(found))
	for i, folder := range found {
		names[i] = filepath.Base(filepath.Dir(folder))
	}
	slices.Sort(names)
	return names, nil
}

// assemble returns the files of a function's archive by their slashed paths.
func assemble(ctx context.Context, root, name string) (map[string][]byte, error) {
	packages, err := imported(ctx, root, "./"+path.Join("functions", name, entrypoint))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, p := range packages {
		folder := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
		if folder == path.Join("functions", name, entrypoint) {
			folder = ""
		}
		for _, file := range p.files() {
			content, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(file)))
			if err != nil {
				return nil, fmt.Errorf("read a package's file: %w", err)
			}
			files[path.Join(folder, file)] = content
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, file)) //nolint:gosec // the module that was named
		if err != nil {
			return nil, fmt.Errorf("read the module: %w", err)
		}
		files[file] = content
	}
	return files, tidy(ctx, files)
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct {
		Path string
		Main bool
	}
	GoFiles, CgoFiles, HFiles, SFiles, EmbedFiles []string
}

func (p listed) files() []string {
	return slices.Concat(p.GoFiles, p.CgoFiles, p.HFiles, p.SFiles, p.EmbedFiles)
}

// imported lists a package of the module and the module's other packages that it
// imports, directly or not, with their files for the machines that functions run
// on.
func imported(ctx context.Context, root, entry string) ([]listed, error) {
	output, err := command(ctx, root, "list", "-deps", "-json=ImportPath,Dir,Standard,Module,GoFiles,CgoFiles,HFiles,SFiles,EmbedFiles", entry)
	if err != nil {
		return nil, err
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		if p.Module != nil && p.Module.Main {
			packages = append(packages, p)
		}
	}
}

// tidy leaves in go.mod and go.sum what the files need, with the versions that
// they had: a dependency of other parts then changes nothing here.
func tidy(ctx context.Context, files map[string][]byte) error {
	folder, err := os.MkdirTemp("", "archive")
	if err != nil {
		return fmt.Errorf("folder to tidy in: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := write(folder, files); err != nil {
		return err
	}
	if err := write(folder, map[string][]byte{tidying + "/main.go": []byte(program)}); err != nil {
		return err
	}
	if _, err := command(ctx, folder, "mod", "tidy"); err != nil {
		return err
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		if files[file], err = os.ReadFile(filepath.Join(folder, file)); err != nil { //nolint:gosec // a folder of our own
			return fmt.Errorf("read what was tidied: %w", err)
		}
	}
	files["go.mod"], err = order(files["go.mod"])
	return err
}

// order returns a go.mod with its requirements sorted in two blocks, for tidying
// leaves them where others stood before.
func order(module []byte) ([]byte, error) {
	file, err := modfile.Parse("go.mod", module, nil)
	if err != nil {
		return nil, fmt.Errorf("order requirements: %w", err)
	}
	var required []*modfile.Require
	for _, r := range file.Require {
		required = append(required, &modfile.Require{Mod: r.Mod, Indirect: r.Indirect})
	}
	slices.SortFunc(required, func(a, b *modfile.Require) int { return strings.Compare(a.Mod.Path, b.Mod.Path) })
	file.SetRequire(nil)
	file.Cleanup()
	file.SetRequireSeparateIndirect(required)
	file.Cleanup()
	return modfile.Format(file.Syntax), nil
}

// write puts files below a folder.
func write(folder string, files map[string][]byte) error {
	for name, content := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// command runs the go command in a folder as for the machines that functions run
// on and returns what it prints.
func command(ctx context.Context, folder string, arguments ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // the callers' own words
	c.Dir = folder
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "GOFLAGS=")
	var complaints bytes.Buffer
	c.Stderr = &complaints
	output, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", arguments[0], err, bytes.TrimSpace(complaints.Bytes()))
	}
	return output, nil
}
