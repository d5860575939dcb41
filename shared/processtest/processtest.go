// Package processtest runs our programs as child processes that can be killed and started
// again: the soak's cluster, and functions under test.
package processtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"coldaisle.dev/shared/child"
)

// startTimeout bounds the time until a program opens its port, stopTimeout the time
// from a signal to its exit.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = time.Minute
)

// Process is a program that listens on a port, which stays the same when it is started again.
type Process struct {
	Name string // such as ingest-1; its log has the same name
	URL  string // of its port

	program, address, log string
	environ               []string

	mu     sync.Mutex
	cmd    *exec.Cmd // nil while it does not run
	exited <-chan struct{}
}

// New prepares a process without starting it. It writes to a log in the folder logs. environ,
// NAME=value, is added to its PORT.
func New(ctx context.Context, name, program, logs string, environ ...string) (*Process, error) {
	port, err := child.Port(ctx)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return &Process{
		Name: name, URL: "http://" + address, program: program, address: address, log: filepath.Join(logs, name+".log"),
		environ: append([]string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), //nolint:forbidigo // the child's, not a setting
			"PORT=" + strconv.Itoa(port),
		}, environ...),
	}, nil
}

// PID is the id of the running process; 0 if there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Output is everything that the process has written, in all its starts.
func (p *Process) Output() string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(output)
}

// LastLines is the end of the output.
func (p *Process) LastLines() string {
	lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// Start starts the process and waits until its port is open.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("%s runs already", p.Name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.program) //nolint:gosec,noctx // built by us; it outlives the start and ends by signals
	cmd.Env = p.environ
	cmd.Stdout, cmd.Stderr = log, log
	endWithParent(cmd)
	exited, err := child.Launch(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
		if err == nil {
			_ = conn.Close()
			p.cmd, p.exited = cmd, exited
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s exited at start:\n%s", p.Name, p.LastLines())
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			return fmt.Errorf("%s does not open its port: %w\n%s", p.Name, ctx.Err(), p.LastLines())
		case <-time.After(time.Millisecond):
		}
	}
}

// End sends a signal and waits until the process has exited: SIGKILL for a loss of
// power, SIGTERM for an orderly restart, SIGQUIT to make a Go program log its
// goroutines. It returns the exit status, -1 of a process that a signal ended.
func (p *Process) End(signal syscall.Signal) (status int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("end %s: %w", p.Name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.exited
		err = fmt.Errorf("%s did not end within %s of signal %d and was killed", p.Name, stopTimeout, signal)
	}
	status = p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return status, err
}

// Signal sends a signal that does not end the process: SIGSTOP makes it hang,
// SIGCONT continues it.
func (p *Process) Signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s does not run", p.Name)
	}
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Build compiles a program of ours, by its package, to a path, as releases do: each package is
// compiled in one form beside that with the race detector. version is what the program says, if any.
func Build(ctx context.Context, path, pkg, version string) error {
	compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", path, pkg) //nolint:gosec // packages of our own
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}
