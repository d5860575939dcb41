package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The programs' names, with which the names of their processes begin.
const (
	gatewayProgram   = "gateway"
	apiProgram       = "api"
	redeliverProgram = "redeliver"
)

// packages returns the main package of each program.
func packages(functions []string) map[string]string {
	all := map[string]string{
		gatewayProgram:   "coldaisle.dev/edge-gateway",
		apiProgram:       "coldaisle.dev/run/server",
		redeliverProgram: "coldaisle.dev/run/tools/redeliver",
	}
	for _, function := range functions {
		all[function] = "coldaisle.dev/functions/" + function + "/serve"
	}
	return all
}

// Programs are the paths of the programs that [Build] has built, by name.
type Programs map[string]string

// Build compiles the programs into a folder, as `make build` does.
func Build(ctx context.Context, dir string) (Programs, error) {
	paths := Programs{}
	for name, pkg := range packages(functions()) {
		paths[name] = filepath.Join(dir, name)
		compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", paths[name], pkg) //nolint:gosec // packages of our own
		compile.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := compile.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, output)
		}
	}
	return paths, nil
}

// run runs a program to its end.
func run(ctx context.Context, program string, environ []string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...) //nolint:gosec // built by us
	command.Env = environ
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, output)
	}
	return nil
}
