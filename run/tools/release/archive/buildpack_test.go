package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"coldaisle.dev/shared/must"
)

// How Google's Go buildpack names things; see [buildpack].
const (
	sourceFolder = "serverless_function_source_code"
	mainPackage  = "functions.local/app"
	framework    = "github.com/GoogleCloudPlatform/functions-framework-go"
)

// declarative stands for the main that the buildpack generates when the root
// package imports the framework's package functions itself: what is registered
// in an init is served.
const declarative = `package main

import (
	"log"
	"os"

	_ "{{.Package}}"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

func main() {
	log.Fatal(funcframework.Start(os.Getenv("PORT")))
}
`

// nonDeclarative stands for the one that it generates otherwise: the target is
// the name of a function in the root package.
const nonDeclarative = `package main

import (
	"context"
	"log"
	"os"

	userfunction "{{.Package}}"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

func main() {
	if err := funcframework.RegisterHTTPFunctionContext(context.Background(), "/", userfunction.{{.Target}}); err != nil {
		log.Fatal(err)
	}
	log.Fatal(funcframework.Start(os.Getenv("PORT")))
}
`

// buildpack does with a function's archive, in an empty folder, what Google's Go
// buildpack does, and returns the program. The steps are those of
// https://github.com/GoogleCloudPlatform/buildpacks, read at commit 21f28de8:
//
//   - cmd/go/functions_framework/lib/lib.go: BuildFn moves the source into a
//     folder of its own. createMainGoMod, for a source with a go.mod and no
//     vendor folder, puts a main into functions.local/app of the function's own
//     module and tidies that module. createMainGoFile chooses the main by what the
//     root package itself imports, and by nothing further down.
//   - cmd/go/functions_framework/converter/get_package/main.go finds those
//     imports: of every Go file in the root, whatever its name or build constraint.
//   - cmd/go/build/lib/lib.go and pkg/golang/golang.go build that main, in the
//     source's folder, with neither GOFLAGS nor a target machine set.
//
// Where BUILDPACKS names a folder with Google's own programs, they do it: see .ci/buildpack.
func buildpack(ctx context.Context, archive []byte, work, target string) (string, error) {
	if programs := os.Getenv("BUILDPACKS"); programs != "" {
		return googles(ctx, programs, archive, work, target)
	}
	source := filepath.Join(work, sourceFolder)
	if err := unpack(archive, source); err != nil {
		return "", err
	}
	name, imports, err := rootPackage(source)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(source, "vendor")); err == nil {
		return "", errors.New("a vendor folder: the buildpack goes another way")
	}
	// Without a go.sum the buildpack would make one, of versions of its own choice.
	tidied, err := moduleFiles(source)
	if err != nil {
		return "", err
	}
	module, err := toolchain(ctx, source, "list", "-m")
	if err != nil {
		return "", err
	}
	if first, _, _ := strings.Cut(module, "/"); !strings.Contains(first, ".") {
		return "", fmt.Errorf("module %s has no dot in its first element", module)
	}
	imported := module
	if _, err := os.Stat(filepath.Join(work, name)); err == nil {
		imported += "/" + name
	}
	// Where the framework is not required, the buildpack adds a version of its own.
	if _, err := toolchain(ctx, source, "list", "-m", framework); err != nil {
		return "", err
	}
	generated := nonDeclarative
	if imports[framework+"/functions"] {
		generated = declarative
	}
	var main bytes.Buffer
	if err := template.Must(template.New("main").Parse(generated)).Execute(&main, map[string]string{"Package": imported, "Target": target}); err != nil {
		return "", fmt.Errorf("generate main: %w", err)
	}
	if err := writeFiles(source, map[string][]byte{mainPackage + "/main.go": main.Bytes()}); err != nil {
		return "", err
	}
	if _, err := toolchain(ctx, source, "mod", "tidy"); err != nil {
		return "", err
	}
	if again, err := moduleFiles(source); err != nil || again != tidied {
		return "", fmt.Errorf("built with other modules than were tested (%w): %s", err, again)
	}
	program := filepath.Join(work, "main")
	_, err = toolchain(ctx, source, "build", "-o", program, filepath.Join(source, mainPackage))
	return program, err
}

// googles builds with Google's own programs. Each is called as the lifecycle of buildpacks
// calls it, and leaves in its layers what the next one finds in its environment.
func googles(ctx context.Context, programs string, archive []byte, work, target string) (string, error) {
	application := filepath.Join(work, "workspace")
	modules, err := toolchain(ctx, ".", "env", "GOMODCACHE") // which Google downloads again
	if err = errors.Join(err, unpack(archive, application)); err != nil {
		return "", err
	}
	environ := append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOMODCACHE="+modules, "GOOGLE_FUNCTION_TARGET="+target,
		"CNB_PLATFORM_DIR="+work, "CNB_BP_PLAN_PATH="+filepath.Join(work, "plan.toml"))
	layers := ""
	for _, name := range []string{"functions_framework", "build"} {
		folder := filepath.Join(programs, name)
		layers = filepath.Join(work, name)
		c := exec.CommandContext(ctx, filepath.Join(folder, "bin", "build"))
		c.Dir = application
		c.Env = append(environ, "CNB_BUILDPACK_DIR="+folder, "CNB_LAYERS_DIR="+layers)
		if output, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("buildpack %s: %w\n%s", name, err, output)
		}
		variables, _ := filepath.Glob(filepath.Join(layers, "*", "env.build", "*.override"))
		for _, path := range variables {
			value, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("what %s leaves: %w", name, err)
			}
			environ = append(environ, strings.TrimSuffix(filepath.Base(path), ".override")+"="+string(value))
		}
	}
	return filepath.Join(layers, "bin", "main"), nil
}

// rootPackage returns the name of the one package in a folder and what its files
// import.
func rootPackage(folder string) (name string, imports map[string]bool, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		return "", nil, fmt.Errorf("no Go package in %s (%w)", folder, err)
	}
	imports = map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return "", nil, fmt.Errorf("read imports: %w", err)
		}
		if name != "" && name != file.Name.Name {
			return "", nil, fmt.Errorf("two packages, %s and %s", name, file.Name.Name)
		}
		name = file.Name.Name
		for _, i := range file.Imports {
			imports[strings.Trim(i.Path.Value, `"`)] = true
		}
	}
	return name, imports, nil
}

// moduleFiles is what go.mod and go.sum say.
func moduleFiles(folder string) (string, error) {
	var both strings.Builder
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			return "", fmt.Errorf("read the module: %w", err)
		}
		both.Write(content)
	}
	return both.String(), nil
}

// toolchain runs the go command as the buildpack does: by the machine's own
// settings, of which a developer's are taken away.
func toolchain(ctx context.Context, folder string, words ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", words...)
	c.Dir = folder
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	output, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(words, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(output)), nil
}

// TestBuildpackSeesDirectImportsOnly builds a function that registers by way of
// another package of ours: the buildpack does not see it and looks for a Go
// function of the target's name.
func TestBuildpackSeesDirectImportsOnly(t *testing.T) {
	t.Parallel()
	copied := module(t)
	const indirect = `package entrypoint

import (
	"net/http"

	"coldaisle.dev/shared/indirect"
)

func init() { indirect.Register("storealert", func(http.ResponseWriter, *http.Request) {}) }
`
	const register = `package indirect

import (
	"net/http"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
)

func Register(name string, f func(http.ResponseWriter, *http.Request)) { functions.HTTP(name, f) }
`
	must.Do(t, writeFiles(copied, map[string][]byte{
		"functions/storealert/entrypoint/function.go": []byte(indirect),
		"shared/indirect/indirect.go":                 []byte(register),
	}))
	_, err := buildpack(t.Context(), packed(t, copied, "storealert"), t.TempDir(), "storealert")
	if err == nil || !strings.Contains(err.Error(), "undefined: userfunction.storealert") {
		t.Errorf("built with %v", err)
	}
}
