package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"coldaisle.dev/shared/processtest"
)

// The programs' names, with which the names of their processes begin; the functions are one
// program, whose processes bear the functions' names.
const (
	gatewayProgram   = "gateway"
	apiProgram       = "api"
	functionsProgram = "functions"
	redeliverProgram = "redeliver"
)

// buildPrograms compiles the programs into a folder, with what other tests have compiled.
func buildPrograms(ctx context.Context, dir string) error {
	for program, pkg := range map[string]string{
		gatewayProgram: "edge-gateway", apiProgram: "run/server", functionsProgram: "functions/serve", redeliverProgram: "run/tools/redeliver",
	} {
		if err := processtest.Build(ctx, filepath.Join(dir, program), "coldaisle.dev/"+pkg, ""); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program to its end.
func (c *cluster) run(ctx context.Context, program string, environ []string, arguments ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(c.programs, program), arguments...) //nolint:gosec // built by us
	command.Env = environ
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, output)
	}
	return nil
}
