package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// firmware is the reference node.
const firmware = "../../../edge-gateway/nodes/micropython"

// micropython copies the firmware to a folder, as onto a board, and returns the command
// that starts it there on MicroPython's own unix port. Only pins, chips, the radio and the
// watchdog are stand-ins. Lines of settings are added to config.py.
func micropython(t *testing.T, settings string, environment ...string) *exec.Cmd {
	t.Helper()
	interpreter := tooltest.Program(t, "micropython")
	board := t.TempDir()
	for _, pattern := range []string{firmware + "/*.py", firmware + "/hardware/*.py"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content := must.Get(os.ReadFile(file))(t)
			if filepath.Base(file) == "config.py" {
				content = append(content, "\nWIFI = \"the test's\"\n"+settings...)
			}
			must.Do(t, os.WriteFile(filepath.Join(board, filepath.Base(file)), content, 0o600))
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	arguments := []string{filepath.Join(board, "run.py")}
	for _, setting := range environment {
		if size, ok := strings.CutPrefix(setting, "HEAP="); ok {
			arguments = append([]string{"-X", "heapsize=" + size}, arguments...)
		}
	}
	command := exec.CommandContext(ctx, interpreter, arguments...)
	command.Env = append(os.Environ(), environment...)
	return command
}

// border answers what a node's hardware is asked, such as "sleep 1000" or "measure". It
// is called by one goroutine; false switches the board off.
type border func(question []string) (answer string, on bool)

// power switches a board on and returns when it is switched off. What it printed on its
// console is returned.
func power(t *testing.T, hardware border, settings string, environment ...string) (console string) {
	t.Helper()
	command := micropython(t, settings, append(environment, "BORDER=1")...)
	answers := must.Get(command.StdinPipe())(t)
	questions := must.Get(command.StdoutPipe())(t)
	var faults bytes.Buffer
	command.Stderr = &faults
	must.Do(t, command.Start())
	var printed strings.Builder
	lines := bufio.NewScanner(questions)
	off := false
	for lines.Scan() {
		question, asked := strings.CutPrefix(lines.Text(), "@")
		if !asked {
			fmt.Fprintln(&printed, lines.Text())
			continue
		}
		answer, on := hardware(strings.Fields(question))
		if !on {
			off = true
			break
		}
		must.Get(io.WriteString(answers, answer+"\n"))(t)
	}
	_ = answers.Close() // the node asks in vain, and ends
	_, _ = io.Copy(io.Discard, questions)
	if err := command.Wait(); err != nil || !off {
		t.Errorf("the board went off by itself: %v\n%s%s", err, printed.String(), faults.String())
	}
	return printed.String()
}
