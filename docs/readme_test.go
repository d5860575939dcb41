package docs

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// patience is the longest wait for a program; only a hang takes longer.
const patience = 15 * time.Minute

// command is a shell command in the repository's root, as a reader types it. It builds
// with the race detector when the test was: make test has compiled everything so.
func command(t *testing.T, script string, environ ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	c.Dir = ".."
	c.Env = append(os.Environ(), append([]string{"MAKEFLAGS=", "MAKELEVEL="}, environ...)...)
	if tooltest.RaceDetector() {
		c.Env = append(c.Env, "GOFLAGS=-race")
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals reach what it starts
	c.WaitDelay = 10 * time.Second
	return c
}

// started runs a command until the test ends.
func started(t *testing.T, c *exec.Cmd) *bufio.Scanner {
	t.Helper()
	c.Stderr = os.Stderr
	out := must.Get(c.StdoutPipe())(t)
	must.Do(t, c.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT)
		_ = c.Wait()
	})
	return bufio.NewScanner(out)
}

// block returns the first indented block of README that begins with a text.
func block(t *testing.T, begin string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "../README.md"), "\n    "+begin)
	if !found {
		t.Fatalf("README has no command %s", begin)
	}
	text, _, _ := strings.Cut(rest, "\n\n")
	return begin + text
}

// TestReadmeCommands runs the commands of README as a reader does: the system with its
// flags, the requests to its API, a function alone beside it, and a replay. Only ports and
// the data folder are the test's own.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	tooltest.Program(t, "curl")
	port := func() string { return strconv.Itoa(tooltest.FreePort(t)) }
	data, api, gateway, alone := t.TempDir(), port(), port(), port()
	own := func(text string) string {
		return strings.NewReplacer(".coldaisle/", data+"/", "localhost:8000", "localhost:"+api, "PORT=8090", "PORT="+alone).Replace(text)
	}
	// The page is built by the tests of the dashboard.
	run := started(t, command(t, fmt.Sprintf(`exec make -o page run ARGS="--data %s --api-port %s --gateway-port %s --speed 20"`, data, api, gateway)))
	signIn := regexp.MustCompile(`^  Sign in +(\S+) +(\S+)$`)
	var login []string
	for login == nil && run.Scan() {
		login = signIn.FindStringSubmatch(run.Text())
	}
	if login == nil {
		t.Fatal("make run prints no login")
	}
	go func() {
		for run.Scan() { // it must not block on its output
		}
	}()
	requests := strings.ReplaceAll(own(block(t, "token=$(curl")), "the one it printed", login[2])
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) { // between two tries: the first reading comes after a while
		out, err := command(t, requests).CombinedOutput()
		if err == nil && strings.Contains(string(out), `"temperature"`) && strings.Contains(string(out), `"kind":"threshold"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%v\n%s", requests, err, out)
		}
	}

	started(t, command(t, own(block(t, "(set -a; . .coldaisle/environment"))))
	reading := base64.StdEncoding.EncodeToString([]byte(`{"id":"a1","node_id":"alone","temperature":21.5,"humidity":40}`))
	envelope := fmt.Sprintf(`{"message":{"data":%q,"messageId":"1","publishTime":%q,"attributes":{"node_id":"alone"}},"subscription":"data-ingest"}`,
		reading, time.Now().UTC().Format(time.RFC3339))
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // between two tries: it is being built
		response, err := http.Post("http://localhost:"+alone, "application/json", strings.NewReader(envelope))
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode < 300 {
				break
			}
			err = fmt.Errorf("answered %s", response.Status)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}

	recording := filepath.Join(data, "recording.csv")
	must.Do(t, os.WriteFile(recording, []byte("node_id,timestamp,temperature,humidity,label\nn1,2026-03-01T12:00:00Z,21.5,40,0\nn1,2026-03-01T12:00:30Z,21.6,40,0\n"), 0o600))
	if out, err := command(t, strings.ReplaceAll(block(t, "make replay"), "recording.csv", recording)).CombinedOutput(); err != nil {
		t.Errorf("make replay: %v\n%s", err, out)
	}
}

// TestEveryMakeTargetOfReadmeRuns holds the targets that README names against those that
// TestReadmeCommands, each change (.ci/run) or the night (.ci/nightly) runs.
func TestEveryMakeTargetOfReadmeRuns(t *testing.T) {
	t.Parallel()
	runs := []string{"run", "replay", "test"} // by TestReadmeCommands and TestMakeTestWithoutOptionalPrograms
	for _, script := range []string{"../.ci/run", "../.ci/nightly"} {
		for _, line := range regexp.MustCompile(`\bmake((?: -k)?(?: [a-z-]+)+)`).FindAllStringSubmatch(read(t, script), -1) {
			runs = append(runs, strings.Fields(line[1])...)
		}
	}
	if strings.Contains(read(t, "../.ci/nightly"), "\nfuzz() { .ci/fuzz") {
		runs = append(runs, "fuzz")
	}
	named := regexp.MustCompile("(?m)(?:^    |`)make ([a-z-]+)").FindAllStringSubmatch(read(t, "../README.md"), -1)
	if len(named) < 10 {
		t.Errorf("%d targets are found: some are not seen", len(named))
	}
	for _, target := range named {
		must.Equal(t, "something runs make "+target[1]+", which README names", true, slices.Contains(runs, target[1]))
	}
}

// TestMakeTestWithoutOptionalPrograms runs make test for the tests that need programs of
// others, on a machine that has none of them: they are skipped at once, and named.
func TestMakeTestWithoutOptionalPrograms(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	if os.Getuid() != 0 {
		tooltest.Unable(t, "a mount namespace needs root")
	}
	tooltest.Program(t, "unshare")
	hide := "hide() { [[ ! -e $1 ]] || mount --bind /dev/null \"$(readlink -f \"$1\")\"; }\n"
	var hidden []string
	for _, program := range []string{"micropython", "prometheus", "promtool", "amtool", "prometheus-alertmanager", "avahi-daemon", "avahi-browse", "avahi-resolve", "dig", "systemd-analyze"} {
		for _, folder := range []string{"/usr/local/bin", "/usr/bin", "/usr/sbin"} {
			hidden = append(hidden, "hide "+filepath.Join(folder, program)+"\n")
		}
	}
	hide += strings.Join(hidden, "")
	hide += `zeroconf=$(/usr/bin/python3 -c 'import os, zeroconf; print(os.path.dirname(zeroconf.__file__))' 2>/dev/null) || zeroconf=
[[ -z $zeroconf ]] || { mount -t tmpfs none "$zeroconf" && echo 'raise ImportError' >"$zeroconf/__init__.py"; }
`
	packages, programs := "./run/tools/nodecheck ./edge-gateway/packaging", []string{"micropython", "systemd-analyze"}
	if os.Getenv("NIGHTLY") != "" { // the others take minutes to link
		packages += " ./edge-gateway/netnstest ./run/api"
		programs = append(programs, "dig", "avahi-resolve", "python3-zeroconf", "promtool")
	}
	script := hide + `exec make test PAGE_TESTS=true TESTS="-run 'TestMicroPythonNodeIsInOrder|TestEveryClientFindsIt|TestUnit|TestMetrics|TestRecipes' ` +
		packages + `"`
	c := command(t, `exec unshare --mount --propagation private bash -euo pipefail -c "$SCRIPT"`, "SCRIPT="+script, "CI=")
	began := time.Now()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v after %s\n%s", err, time.Since(began), out)
	}
	last := regexp.MustCompile(`(?m)^NOT TRIED HERE: (.+); \.ci/install installs them$`).FindStringSubmatch(string(out))
	if last == nil {
		t.Fatalf("the end names no programs:\n%s", out)
	}
	for _, program := range programs {
		must.Equal(t, program+" is named: "+last[1], true, slices.Contains(strings.Split(last[1], ", "), program))
	}
}

// TestCheckNamesWhatIsMissing runs what make run and make test begin with on a machine that has
// nothing that they need, and then on one with Debian 12's Node.js.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	bare := t.TempDir()
	for _, tool := range []string{"bash", "sed", "sort", "head", "dirname"} {
		must.Do(t, os.Symlink(must.Get(exec.LookPath(tool))(t), filepath.Join(bare, tool)))
	}
	names := func(missing ...string) {
		t.Helper()
		c := command(t, "exec .ci/check test", "PATH="+bare, "CHROMIUM=")
		c.Path = filepath.Join(bare, "bash")
		out, err := c.CombinedOutput()
		must.Equal(t, "it passes", false, err == nil)
		for _, what := range missing {
			must.Contain(t, "the check", string(out), "missing: "+what)
		}
	}
	names("Go 1", "npm", "a C compiler", "Chromium")
	for _, tool := range []string{"npm", "node"} {
		must.Do(t, os.WriteFile(filepath.Join(bare, tool), []byte("#!"+filepath.Join(bare, "bash")+"\necho v18.20.4\n"), 0o700)) //nolint:gosec // it is run
	}
	names("Node.js 20.19 (this is 18.20.4)")
}
