package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/tooltest"
)

// killsVariable is how often TestLocalSystem kills the local system; `make kills` sets it.
const killsVariable = "KILLS"

// localSystem is the program of `make run` as a process with children of its own.
type localSystem struct {
	t             *testing.T
	program, data string
	temp          string // its TMPDIR
	api, gateway  int
	credentials   system.Credentials

	command *exec.Cmd
	output  logtest.Buffer
	exited  chan error
}

func buildLocalSystem(t *testing.T) string {
	t.Helper()
	program := filepath.Join(folder(t), "coldaisle")
	must.Do(t, processtest.Build(t.Context(), program, "coldaisle.dev/run/local", ""))
	return program
}

func newLocalSystem(t *testing.T, program string) *localSystem {
	t.Helper()
	dir := folder(t)
	s := &localSystem{
		t: t, program: program, data: filepath.Join(dir, "data"), temp: filepath.Join(dir, "temporary"),
		api: tooltest.FreePort(t), gateway: tooltest.FreePort(t),
	}
	must.Do(t, os.Mkdir(s.temp, 0o700))
	t.Cleanup(func() {
		if s.command != nil {
			s.killAll()
		}
	})
	return s
}

// start runs the program until it says that it is running.
func (s *localSystem) start() {
	s.t.Helper()
	s.command = exec.CommandContext(context.WithoutCancel(s.t.Context()), s.program, "--nodes", "0", "--data", s.data,
		"--api-port", strconv.Itoa(s.api), "--gateway-port", strconv.Itoa(s.gateway))
	// The environment may name servers that take the place of the program's own.
	s.command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + s.temp}
	s.command.Stdout, s.command.Stderr = &s.output, &s.output
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Do(s.t, s.command.Start())
	s.exited = make(chan error, 1)
	go func() { s.exited <- s.command.Wait() }()
	var said string
	for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(said, "Ctrl-C stops it"); {
		said += s.output.Take()
		select {
		case err := <-s.exited:
			s.exited <- err
			s.t.Fatalf("the program ended: %v\n%s", err, said+s.output.Take())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the program does not start:\n%s", said)
		}
	}
	s.credentials = s.look(said)
}

// look checks that the program says where to look, and returns what to sign in with.
func (s *localSystem) look(said string) (found system.Credentials) {
	s.t.Helper()
	must.Contain(s.t, "what it says", said,
		fmt.Sprintf("Dashboard   %s\n", s.apiURL()), fmt.Sprintf("API         %s/docs\n", s.apiURL()),
		fmt.Sprintf("Gateway     %s/api/v1/nodes\n", s.gatewayURL()), filepath.Join(s.data, "coldaisle.log"),
		"Data        "+s.data+"\n", "Pub/Sub     127.0.0.1:", "Functions   http://127.0.0.1:")
	if _, line, ok := strings.Cut(said, "Sign in"); ok {
		_, _ = fmt.Sscan(line, &found.Email, &found.Password)
	}
	return found
}

// processes lists the program's process and all that descend from it.
func (s *localSystem) processes() []int {
	s.t.Helper()
	children := map[int][]int{}
	for _, process := range must.Get(procfs.AllProcs())(s.t) {
		if stat, err := process.Stat(); err == nil { // it has not ended meanwhile
			children[stat.PPID] = append(children[stat.PPID], stat.PID)
		}
	}
	all := []int{s.command.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

func running(pid int) bool {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := process.Stat()
	return err == nil && stat.State != "Z" && stat.State != "X"
}

// killAll kills the program and PostgreSQL, all at one moment: they are stopped first,
// so that none sees another's end. It returns how many they were.
func (s *localSystem) killAll() int {
	s.t.Helper()
	var all []int
	for {
		found := s.processes()
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if slices.Equal(found, all) {
			break
		}
		all = found // those that were started meanwhile
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	s.t.Logf("the program ended: %v", <-s.exited)
	s.command = nil
	return len(all)
}

func (s *localSystem) gatewayURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.gateway))
}

func (s *localSystem) apiURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.api))
}

// senders post readings to the gateway for as long as ctx lives, each once. One in five is too hot.
type senders struct {
	url     string
	client  *http.Client
	running sync.WaitGroup

	answered, next atomic.Int64
}

const sendInterval = 20 * time.Millisecond

func (s *senders) send(ctx context.Context, node string) {
	for pause.For(ctx, sendInterval) == nil {
		n := s.next.Add(1)
		temperature := 20 + float64(n%25)
		if n%5 == 0 {
			temperature = 60
		}
		body := fmt.Sprintf(`{"id":"%x","node_id":%q,"temperature":%g,"humidity":40}`, n, node, temperature)
		request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, s.url+"/api/v1/message", strings.NewReader(body))
		if err != nil {
			return
		}
		response, err := s.client.Do(request)
		if err != nil {
			continue // killed
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			s.answered.Add(1)
		}
	}
}

// kills is how often the test kills.
func kills(t *testing.T) int {
	t.Helper()
	given := os.Getenv(killsVariable)
	if given == "" {
		return 3
	}
	return must.Get(strconv.Atoi(given))(t)
}

// TestLocalSystem runs the program of `make run`.
func TestLocalSystem(t *testing.T) {
	t.Parallel()
	pgtest.URL(t) // skips where there is no PostgreSQL
	program := buildLocalSystem(t)
	t.Run("loses nothing when it is killed", func(t *testing.T) {
		t.Parallel()
		localSystemLosesNothing(t, newLocalSystem(t, program), kills(t))
	})
	t.Run("leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		localSystemLeavesNothing(t, newLocalSystem(t, program))
	})
}

// localSystemLosesNothing kills the program and its PostgreSQL again and again, under load. At the end every reading
// that was answered is stored once, and so is every alert that it calls for.
func localSystemLosesNothing(t *testing.T, local *localSystem, times int) {
	t.Helper()
	local.start()
	nodes := make([]string, 16)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("killed-%d", i+1)
	}
	user := &system.APIUser{Base: local.apiURL()}
	must.Do(t, user.SignIn(t.Context(), local.credentials, ""))
	must.Do(t, user.CreateRoom(t.Context(), "Room", nodes))

	account := ledger.New(func(string) alert.Thresholds { return alert.Defaults() }, time.Now)
	load := &senders{
		url:    local.gatewayURL(),
		client: &http.Client{Transport: account.Transport(&http.Transport{MaxIdleConnsPerHost: len(nodes)}), Timeout: 30 * time.Second},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, node := range nodes {
		load.running.Go(func() { load.send(ctx, node) })
	}
	victims := 0
	for n := range times {
		before := load.answered.Load()
		must.Eventually(t, fmt.Sprintf("after %d kills the gateway answers", n), func() bool { return load.answered.Load() >= before+100 })
		sleep(rand.N(500 * time.Millisecond)) // a random moment of the load
		if n == times-1 {
			stop() // no reading after those that the last kill interrupts
		}
		killed := local.killAll()
		if killed < 5 {
			t.Fatalf("%d processes: PostgreSQL and its children were not among them", killed)
		}
		victims += killed
		if n < times-1 {
			local.start()
		}
	}
	load.running.Wait()
	sum := settle(t, local, account, nodes)
	t.Logf("%d kills of %d processes in all: %d readings sent, %d answered, %d without an answer, %d stored, %d alerts stored",
		times, victims, sum.Sent, sum.Answered, sum.Unanswered, sum.Stored, sum.Alerted)
	must.Hold(t, sum.Unexplained == 0 && sum.Duplicated == 0 && sum.Alerted != 0 && sum.Answered >= 100*times,
		"%+v", sum)
}

// settle starts what was killed once more, in this process, waits until everything is delivered, and compares what was
// answered with what is stored, and that with what the API shows.
func settle(t *testing.T, local *localSystem, account *ledger.Ledger, nodes []string) ledger.Totals {
	t.Helper()
	s := must.Get(system.Start(t.Context(), system.Options{DataDir: local.data, Clock: time.Now, Log: logging.Discard()}))(t)
	t.Cleanup(func() { must.Do(t, s.Stop()) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	must.Do(t, waitOutboxEmpty(ctx, s.GatewayURL))
	must.Do(t, s.Queue.Drain(ctx))
	must.Do(t, account.Close(ctx, s.Pool))
	user := &system.APIUser{Base: s.APIURL}
	must.Do(t, user.SignIn(ctx, local.credentials, ""))
	shown := 0
	for _, node := range nodes {
		var readings []json.RawMessage
		path := "/api/v1/data/historical/" + node + "?start_time=2020-01-01&end_time=2090-01-01"
		must.Do(t, user.Call(ctx, http.MethodGet, path, nil, &readings))
		shown += len(readings)
	}
	sum := account.Sum()
	must.Equal(t, "readings that the API shows", sum.Stored, shown)
	return sum
}

func localSystemLeavesNothing(t *testing.T, local *localSystem) {
	t.Helper()
	local.start()
	first := local.credentials

	// kill -9 of the program alone: PostgreSQL gets a signal from the kernel, and is still about when the next one starts.
	before := local.processes()
	_ = local.command.Process.Kill()
	t.Logf("the program ended: %v", <-local.exited)
	local.start()
	must.Hold(t, local.credentials == first && first.Password != "",
		"sign in with %v, before with %v", local.credentials, first)
	must.Eventually(t, "the end of processes", func() bool { return !slices.ContainsFunc(before, running) })

	all := local.processes()
	_ = local.command.Process.Signal(syscall.SIGTERM)
	if err := <-local.exited; err != nil {
		t.Errorf("the program ended with %v:\n%s", err, local.output.Take())
	}
	local.command = nil
	for _, pid := range all {
		must.Equal(t, fmt.Sprintf("process %d runs on", pid), false, running(pid))
	}
	for _, port := range []int{local.api, local.gateway} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Error(err)
			continue
		}
		_ = listener.Close()
	}
	left, err := os.ReadDir(local.temp)
	must.Hold(t, err == nil && len(left) == 0, "temporary files are left: %v, %v", left, err)
	_, err = os.Stat(filepath.Join(local.data, "postgres", "data", "postmaster.pid"))
	must.Hold(t, errors.Is(err, fs.ErrNotExist), "PostgreSQL did not end in order: %v", err)
}
