package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// stubFolder holds stubMain while go.mod is tidied.
const stubFolder = "main"

// stubMain imports what the main that the buildpack generates imports, so that tidying
// keeps our versions of these modules in go.mod.
const stubMain = `package main

import (
	_ "github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

func main() {}
`

// functionNames lists the functions: the folders that have an entrypoint.
func functionNames(root string) ([]string, error) {
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

// ownFiles is a template of go list: the files of the module's own packages, below the module's folder.
const ownFiles = `{{if .Module}}{{if .Module.Main}}{{$folder := slice .ImportPath (len .Module.Path)}}` +
	`{{range .GoFiles}}{{$folder}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$folder}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`

// assemble returns the files of a function's archive by their slashed paths: those of its entrypoint and of the
// module's packages that it imports, directly or not, for the platform that functions run on.
func assemble(ctx context.Context, root, name string) (map[string][]byte, error) {
	entry := path.Join("functions", name, entrypoint)
	output, err := goCommand(ctx, root, "list", "-deps", "-f", ownFiles, "./"+entry)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for line := range strings.Lines(string(output) + "/go.mod\n/go.sum\n") {
		file := strings.Trim(line, "/\n")
		if file == "" {
			continue // after each package
		}
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file))) //nolint:gosec // a file of the module that was named
		if err != nil {
			return nil, fmt.Errorf("read the module: %w", err)
		}
		files[strings.TrimPrefix(file, entry+"/")] = content
	}
	return files, tidyModule(ctx, files)
}

// tidyModule removes from go.mod and go.sum what the files do not need, and keeps the
// versions. A changed dependency of another component then changes nothing here.
func tidyModule(ctx context.Context, files map[string][]byte) error {
	folder, err := os.MkdirTemp("", "archive")
	if err != nil {
		return fmt.Errorf("folder to tidy in: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	stub := map[string][]byte{stubFolder + "/main.go": []byte(stubMain)}
	if err := errors.Join(writeFiles(folder, files), writeFiles(folder, stub)); err != nil {
		return err
	}
	if _, err := goCommand(ctx, folder, "mod", "tidy"); err != nil {
		return err
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		if files[file], err = os.ReadFile(filepath.Join(folder, file)); err != nil { //nolint:gosec // a folder of our own
			return fmt.Errorf("read the tidied module: %w", err)
		}
	}
	files["go.mod"], err = sortRequirements(files["go.mod"])
	return err
}

// sortRequirements returns a go.mod with its requirements sorted in two blocks, because
// tidying keeps the order of the original file.
func sortRequirements(module []byte) ([]byte, error) {
	file, err := modfile.Parse("go.mod", module, nil)
	if err != nil {
		return nil, fmt.Errorf("order requirements: %w", err)
	}
	file.SetRequireAtMostTwo(slices.Clone(file.Require))
	file.Cleanup()
	return modfile.Format(file.Syntax), nil
}

// writeFiles puts files below a folder.
func writeFiles(folder string, files map[string][]byte) error {
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

// goCommand runs the go command in a folder, for the platform that functions run on,
// and returns its output.
func goCommand(ctx context.Context, folder string, arguments ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // the callers' own words
	c.Dir = folder
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	output, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", arguments[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output, nil
}
