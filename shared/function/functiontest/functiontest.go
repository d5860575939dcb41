// Package functiontest runs a function as a process, as in production. It builds and
// starts the program with an environment of its own, pushes messages to it over
// HTTP, and ends it with SIGTERM. Tests of entrypoints use it.
package functiontest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/push"
)

// Build compiles a package main and returns the path of the program. pkg is relative
// to the folder of the test.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), filepath.Base(pkg))
	must.Do(tb, processtest.Build(tb.Context(), path, pkg, ""))
	return path
}

// Process is a running function.
type Process struct {
	*processtest.Process

	tb testing.TB
}

// Start runs a program with an environment, NAME=value, and waits until it listens.
// If it still runs when the test ends, it is killed.
func Start(tb testing.TB, program string, environ ...string) *Process {
	tb.Helper()
	child := must.Get(processtest.New(tb.Context(), filepath.Base(program), program, tb.TempDir(), environ...))(tb)
	must.Do(tb, child.Start(tb.Context()))
	p := &Process{Process: child, tb: tb}
	tb.Cleanup(p.Kill)
	return p
}

// Push posts a message and returns the status of the answer, or 0 without an answer.
func (p *Process) Push(m push.Message) int {
	p.tb.Helper()
	body := must.Get(push.Encode(m))(p.tb)
	request := must.Get(http.NewRequestWithContext(p.tb.Context(), http.MethodPost, p.URL, bytes.NewReader(body)))(p.tb)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// Terminate sends SIGTERM and returns the exit status.
func (p *Process) Terminate() int {
	p.tb.Helper()
	return must.Get(p.End(syscall.SIGTERM))(p.tb)
}

// Kill ends the process with SIGKILL, as a lost instance ends.
func (p *Process) Kill() {
	if _, err := p.End(syscall.SIGKILL); err != nil {
		p.tb.Error(err)
	}
}

// Exits runs a program that must refuse to start. It returns the exit status and the
// output.
func Exits(tb testing.TB, program string, environ ...string) (int, string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program)
	command.Env = append([]string{"PORT=0"}, environ...)
	written, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(written)
}
