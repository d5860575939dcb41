// Package tooltest finds third-party programs for tests, and skips tests that cannot run on
// this machine. Each skip is reported to `make test`, which lists it at the end, so that no
// test is left out silently. Call it from the test's own goroutine.
package tooltest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"testing"

	"coldaisle.dev/shared/child"
)

// Report is the variable that names the file to which skips are appended, a line each.
const Report = "NOT_TRIED"

// Installable begins the lines of programs that .ci/install installs.
const Installable = "program "

// Program returns the path of a program that .ci/install installs. Folders are searched
// before PATH. If it is missing the test is skipped; with CI set it fails.
func Program(tb testing.TB, name string, folders ...string) string {
	tb.Helper()
	for _, folder := range append(folders, "") {
		if path, err := exec.LookPath(folder + name); err == nil {
			return path
		}
	}
	Missing(tb, name)
	return ""
}

// Missing skips a test that lacks something that .ci/install installs; with CI set the test
// fails.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("CI") != "" { //nolint:forbidigo // a test binary has no entrypoint to read it
		tb.Fatalf("%s is not installed: .ci/install installs it", what)
	}
	report(tb, Installable+what)
	tb.Skipf("%s is not installed: .ci/install installs it", what)
}

// Unable skips a test that lacks a right or a service of this machine; with CI set the test
// fails.
func Unable(tb testing.TB, format string, values ...any) {
	tb.Helper()
	if os.Getenv("CI") != "" { //nolint:forbidigo // a test binary has no entrypoint to read it
		tb.Fatalf(format, values...)
	}
	Skip(tb, format, values...)
}

// Skip skips a test that needs something which .ci/install does not install either.
func Skip(tb testing.TB, format string, values ...any) {
	tb.Helper()
	reason := fmt.Sprintf(format, values...)
	report(tb, tb.Name()+": "+reason)
	tb.Skip(reason)
}

// Long skips a test that takes more time than `make test` has: `make test-all` runs it.
func Long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("long: make test-all runs it")
	}
}

// Nightly reports whether tests run in full what they otherwise sample.
func Nightly() bool {
	return os.Getenv("NIGHTLY") != "" //nolint:forbidigo // a test binary has no entrypoint to read it
}

func report(tb testing.TB, line string) {
	tb.Helper()
	path := os.Getenv(Report) //nolint:forbidigo // a test binary has no entrypoint to read it
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the file of make test
	if err != nil {
		tb.Fatal(err)
	}
	_, err = file.WriteString(line + "\n")
	if closed := file.Close(); err != nil || closed != nil {
		tb.Fatal(err, closed)
	}
}

// FreePort returns a port on which nothing listens: see child.Port.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := child.Port(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// RaceDetector reports whether the test was built with the race detector, which makes
// computations ten times as slow.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// WithoutRaceDetector is for a test that would compute for minutes under the race detector. If
// the test's binary has that, it runs the test in a binary without it and reports true.
func WithoutRaceDetector(tb testing.TB) bool {
	tb.Helper()
	if !RaceDetector() {
		return false
	}
	test := exec.CommandContext(tb.Context(), "go", "test", "-trimpath", "-count=1", "-run", "^"+tb.Name()+"$", ".") //nolint:gosec // a test of ours
	test.Env = append(os.Environ(), "CGO_ENABLED=0")                                                                 // as processtest.Build
	if output, err := test.CombinedOutput(); err != nil {
		tb.Errorf("%v\n%s", err, output)
	}
	return true
}
