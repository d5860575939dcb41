package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// How Google's Go buildpack names things; see [buildpack].
const (
	sourceFolder = "serverless_function_source_code"
	mainPackage  = "functions.local/app"
)

// generated stands for the main that the buildpack generates when the root package imports the framework's package
// functions itself: what is registered in an init is served. Otherwise it looks for a Go function of the target's name.
const generated = `package main

import (
	"log"
	"os"

	_ "{{MODULE}}"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

func main() {
	log.Fatal(funcframework.Start(os.Getenv("PORT")))
}
`

// buildpack does with a function's archive, in an empty folder, what Google's Go buildpack does, and returns the
// program. The steps are those of https://github.com/GoogleCloudPlatform/buildpacks, read at commit 21f28de8:
//
//   - cmd/go/functions_framework/lib/lib.go: BuildFn moves the source into a
//     folder of its own. createMainGoMod, for a source with a go.mod and no
//     vendor folder, puts a main into functions.local/app of the function's own
//     module and tidies that module. createMainGoFile chooses the main by what the
//     root package itself imports, and by nothing further down: see TestFunctions.
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
	// Without a go.sum the buildpack would make one, of versions of its own choice.
	tidied, err := moduleFiles(source)
	if err != nil {
		return "", err
	}
	module, err := toolchain(ctx, source, "list", "-m")
	if err != nil {
		return "", err
	}
	main := strings.Replace(generated, "{{MODULE}}", module, 1)
	if err := writeFiles(source, map[string][]byte{mainPackage + "/main.go": []byte(main)}); err != nil {
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
	if !tooltest.Nightly() && os.Getenv("BUILDPACKS") == "" { // by day in the form that everything is compiled in
		c.Env = append(c.Env, "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	output, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(words, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(output)), nil
}

// TestBuildpackSeesDirectImportsOnly has Google's own buildpack build a function that registers by way of another
// package of ours: it does not see it and looks for a Go function of the target's name.
func TestBuildpackSeesDirectImportsOnly(t *testing.T) {
	t.Parallel()
	if os.Getenv("BUILDPACKS") == "" {
		t.Skip(".ci/buildpack runs it")
	}
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
	must.Contain(t, "the error", fmt.Sprint(err), "undefined: userfunction.storealert")
}
