// Package functiontest runs a function as a process, as in production. It builds and
// starts the program with an environment of its own, pushes messages to it over
// HTTP, and ends it with SIGTERM. Tests of entrypoints use it.
package functiontest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/tooltest"
)

// patience bounds every wait.
const patience = 3 * time.Minute

// Build compiles a package main and returns the path of the program. pkg is relative
// to the folder of the test.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), filepath.Base(pkg))
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", path, pkg) //nolint:gosec // a test names its own package
	if output, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", pkg, err, output)
	}
	return path
}

// Process is a running function.
type Process struct {
	URL string
	// Listening is the time from the start of the process to its open port.
	Listening time.Duration

	tb      testing.TB
	command *exec.Cmd
	output  *logtest.Buffer
	exited  chan struct{}
	err     error
}

// Start runs a program with an environment, NAME=value, and waits until it listens.
// If it still runs when the test ends, it is killed.
func Start(tb testing.TB, program string, environ ...string) *Process {
	tb.Helper()
	port := strconv.Itoa(tooltest.FreePort(tb))
	address := net.JoinHostPort("127.0.0.1", port)
	p := &Process{URL: "http://" + address, tb: tb, output: &logtest.Buffer{}, exited: make(chan struct{})}
	p.command = exec.CommandContext(context.WithoutCancel(tb.Context()), program)
	p.command.Env = append([]string{"PORT=" + port, "HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}, environ...) //nolint:forbidigo // the process needs the machine's
	p.command.Stdout, p.command.Stderr = p.output, p.output
	began := time.Now() //nolint:forbidigo // measures the process
	must.Do(tb, p.command.Start())
	go func() { p.err = p.command.Wait(); close(p.exited) }()
	tb.Cleanup(func() { p.Kill() })
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(tb.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			p.Listening = time.Since(began)
			return p
		}
		select {
		case <-p.exited:
			tb.Fatalf("%s ended at once: %v\n%s", program, p.err, p.output)
		case <-time.After(time.Millisecond):
		}
		if time.Since(began) > patience {
			tb.Fatalf("%s does not listen\n%s", program, p.output)
		}
	}
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
	must.Do(p.tb, p.command.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.tb.Fatalf("does not end\n%s", p.output)
	}
	return p.command.ProcessState.ExitCode()
}

// Kill ends the process with SIGKILL, as a lost instance ends.
func (p *Process) Kill() {
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Error(err)
	}
	<-p.exited
}

// PID is the id of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Output is what the process has written so far.
func (p *Process) Output() string { return p.output.String() }

// Exits runs a program that must refuse to start. It returns the exit status and the
// output.
func Exits(tb testing.TB, program string, environ ...string) (int, string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, program)
	command.Env = append([]string{"PORT=0"}, environ...)
	written, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(written)
}
