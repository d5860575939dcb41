package tooltest_test

import (
	"os"
	"path/filepath"
	"testing"

	"coldaisle.dev/shared/tooltest"
)

func TestSkipsAreReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "not-tried")
	t.Setenv(tooltest.Report, file)
	t.Setenv("CI", "")
	reached := false
	skipped := func(name string, test func(t *testing.T)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			defer func() {
				if !t.Skipped() {
					t.Error("it is not skipped")
				}
			}()
			test(t)
			reached = true
		})
	}
	skipped("program", func(t *testing.T) { t.Helper(); tooltest.Program(t, "no-such-program", "/usr/sbin/") })
	skipped("right", func(t *testing.T) { t.Helper(); tooltest.Skip(t, "no right to mount: %d", 1) })
	if reached {
		t.Error("a skipped test went on")
	}
	const want = "program no-such-program\nTestSkipsAreReported/right: no right to mount: 1\n"
	if got, err := os.ReadFile(file); string(got) != want || err != nil {
		t.Errorf("reported %q, %v, want %q", got, err, want)
	}
	if path := tooltest.Program(t, "sh"); !filepath.IsAbs(path) {
		t.Errorf("sh is %q", path)
	}
}
