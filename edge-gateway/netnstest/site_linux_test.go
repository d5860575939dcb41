package netnstest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/tooltest"
)

// need returns the path of a program. Those of daemons are not on everybody's PATH.
func need(t *testing.T, name string) string {
	t.Helper()
	return tooltest.Program(t, name, "/usr/sbin/", "/sbin/", "/usr/bin/")
}

var hosts atomic.Int64

// host is a network namespace: a machine with a network of its own.
type host struct {
	t    *testing.T
	name string
}

// newHost makes a machine without network. Namespaces need Linux and root.
func newHost(t *testing.T) *host {
	t.Helper()
	need(t, "ip")
	if os.Geteuid() != 0 {
		tooltest.Unable(t, "network namespaces need root")
	}
	h := &host{t: t, name: fmt.Sprintf("coldaisle-%d-%d", os.Getpid(), hosts.Add(1))}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", h.name).CombinedOutput(); err != nil {
		tooltest.Unable(t, "network namespaces are not allowed here: %s", out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = exec.CommandContext(ctx, "ip", "netns", "delete", h.name).Run()
	})
	h.ip("link", "set", "lo", "up")
	return h
}

func (h *host) ip(arguments ...string) {
	h.t.Helper()
	if out, err := exec.CommandContext(h.t.Context(), "ip", append([]string{"-n", h.name}, arguments...)...).CombinedOutput(); err != nil {
		h.t.Fatalf("ip %v: %v: %s", arguments, err, out)
	}
}

// cable joins two hosts, to eth0 of the second. Each end has, unless empty, an
// address.
func cable(a *host, nameA, addressA string, b *host, addressB string) {
	const nameB = "eth0"
	a.t.Helper()
	a.ip("link", "add", nameA, "type", "veth", "peer", "name", nameB, "netns", b.name)
	for _, end := range []struct {
		*host
		name, address string
	}{{a, nameA, addressA}, {b, nameB, addressB}} {
		if end.address != "" {
			end.ip("address", "add", end.address, "dev", end.name)
		}
		end.ip("link", "set", end.name, "up")
	}
}

// command is a program on the host, with variables beside the test's own.
func (h *host) command(ctx context.Context, environ []string, name string, arguments ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.name, name}, arguments...)...)
	c.Env = append(os.Environ(), environ...)
	return c
}

// says runs a program on the host and returns what it prints. Nothing here
// takes two minutes but on a machine that is very busy.
func (h *host) says(environ []string, name string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	c := h.command(ctx, environ, name, arguments...)
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", name, err, out, errors.String())
	}
	return strings.TrimSpace(string(out)), err
}

// plays has the test's binary play a client on the host.
func (h *host) plays(p play) (string, error) {
	part, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	return h.says([]string{playEnv + "=" + string(part)}, os.Args[0])
}

// player is the test's binary, which plays a client until it is ended.
type player struct {
	in    io.Writer
	lines *bufio.Scanner
	log   logtest.Buffer
	end   func()
}

func (h *host) playing(p play) *player {
	h.t.Helper()
	part := must.Get(json.Marshal(p))(h.t)
	c := h.command(h.t.Context(), []string{playEnv + "=" + string(part)}, os.Args[0])
	made := &player{in: must.Get(c.StdinPipe())(h.t), lines: bufio.NewScanner(must.Get(c.StdoutPipe())(h.t))}
	made.lines.Buffer(nil, 1<<20)
	c.Stderr = &made.log
	must.Do(h.t, c.Start())
	made.end = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if h.t.Failed() {
			h.t.Logf("the %s says\n%s", p.Client, made.log.String())
		}
	})
	h.t.Cleanup(made.end)
	return made
}

// line is the next that it prints.
func (p *player) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

// buildGateway builds the gateway, once: a host has no network to do it with.
var buildGateway = sync.OnceValue(func() error {
	return processtest.Build(context.Background(), filepath.Join(programFolder, "edge-gateway"), "coldaisle.dev/edge-gateway", "")
})

// programFolder is where it is, for as long as the tests run.
var programFolder string

// gatewayProgram returns the path of the gateway.
func gatewayProgram(t *testing.T) string {
	t.Helper()
	must.Do(t, buildGateway())
	return filepath.Join(programFolder, "edge-gateway")
}

// gateway is the program on a host.
type gateway struct {
	*host

	process *exec.Cmd
	log     logtest.Buffer
}

const port = 8080

func (h *host) startGateway(settings ...string) *gateway {
	h.t.Helper()
	g := &gateway{host: h}
	// Nobody takes what it publishes: the gateway must be found all the same.
	g.process = h.command(context.WithoutCancel(h.t.Context()), append([]string{
		"PROJECT_ID=site", "PUBSUB_EMULATOR_HOST=127.0.0.1:9", "PORT=" + strconv.Itoa(port), "OUTBOX_DIR=" + h.t.TempDir(),
	}, settings...), gatewayProgram(h.t))
	g.process.Stderr = &g.log
	must.Do(h.t, g.process.Start())
	h.t.Cleanup(func() {
		g.end(syscall.SIGKILL)
		if h.t.Failed() {
			h.t.Logf("log of the gateway:\n%s", g.log.String())
		}
	})
	return g
}

func (g *gateway) end(signal syscall.Signal) {
	if g.process != nil {
		_ = g.process.Process.Signal(signal)
		_ = g.process.Wait()
		g.process = nil
	}
}

// health is the gateway's own view, of /health; zero while it does not answer.
type health struct {
	Reasons   []string       `json:"reasons"`
	Status    string         `json:"status"`
	Discovery announce.State `json:"mdns"`
}

func (g *gateway) health() (h health) {
	out, err := g.says(nil, "curl", "--silent", "--max-time", "5", fmt.Sprintf("http://127.0.0.1:%d/health", port))
	if err == nil {
		_ = json.Unmarshal([]byte(out), &h)
	}
	return h
}

func (g *gateway) state() announce.State { return g.health().Discovery }

// becomes waits until the gateway has a role under a name.
func (g *gateway) becomes(role announce.Role, name string) {
	g.t.Helper()
	var last announce.State
	must.Eventually(g.t, fmt.Sprintf("%s as %s", role, name), func() bool {
		last = g.state()
		return last.Role == role && strings.HasPrefix(last.Host, name) && len(last.Links) > 0 && last.Links[0].Phase == "ready"
	})
}

// ready waits until the gateway has claimed its names on so many links.
func (g *gateway) ready(links int) {
	g.t.Helper()
	must.Eventually(g.t, fmt.Sprintf("ready on %d links", links), func() bool {
		done := 0
		for _, l := range g.state().Links {
			if l.Phase == "ready" {
				done++
			}
		}
		return done == links
	})
}
