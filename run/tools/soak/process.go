package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"coldaisle.dev/shared/freeport"
)

// startTimeout bounds the time until a program opens its port, stopTimeout the time
// from a signal to its exit.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = 30 * time.Second
)

// process is one of Coldaisle's programs, which can be killed and started again
// on the same port.
type process struct {
	Name string // such as ingest-1; also of its log
	Port int

	program string
	environ []string
	log     string // file

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// newProcess prepares a process; it does not start it.
func newProcess(ctx context.Context, name, program, logs string, environ []string) (*process, error) {
	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}
	return &process{
		Name: name, Port: port, program: program, log: filepath.Join(logs, name+".log"),
		environ: append([]string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), //nolint:forbidigo // the child's, not a setting
			"PORT=" + strconv.Itoa(port),
		}, environ...),
	}, nil
}

// URL is where the process answers.
func (p *process) URL() string { return "http://127.0.0.1:" + strconv.Itoa(p.Port) }

// PID is the running process's, 0 for none.
func (p *process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Start starts the process and waits until its port is open. environ adds to
// its environment, for this start only.
func (p *process) Start(ctx context.Context, environ ...string) error {
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
	cmd.Env = append(append([]string(nil), p.environ...), environ...)
	cmd.Stdout, cmd.Stderr = log, log
	exited := make(chan struct{})
	if err := launch(cmd, exited); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(p.Port))
		if err == nil {
			_ = conn.Close()
			p.cmd, p.exited = cmd, exited
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s exited at start, see %s", p.Name, p.log)
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			return fmt.Errorf("%s does not open its port, see %s: %w", p.Name, p.log, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// launch starts a process from a thread that lives as long as the process: Linux
// sends the parent-death signal when the thread that started it ends.
func launch(cmd *exec.Cmd, exited chan struct{}) error {
	endWithParent(cmd)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	return <-started
}

// End sends a signal and waits until the process has exited: SIGKILL for a loss of
// power, SIGTERM for an orderly restart, SIGQUIT to make a Go program log its
// goroutines.
func (p *process) End(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.Name, err)
	}
	var err error
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.exited
		err = fmt.Errorf("%s did not end within %s of signal %d and was killed", p.Name, stopTimeout, signal)
	}
	p.cmd = nil
	return err
}

// Signal sends a signal that does not end the process: SIGSTOP makes it hang,
// SIGCONT continues it.
func (p *process) Signal(signal syscall.Signal) error {
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
