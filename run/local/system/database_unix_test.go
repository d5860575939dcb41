//go:build unix

package system_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// TestEndOfPostgreSQLEndsTheSystem shows that a database which is killed alone is not
// served without: whoever runs the system is told, and starts it again.
func TestEndOfPostgreSQLEndsTheSystem(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s, err := system.Start(t.Context(), system.Options{
		DataDir: folder, Clock: time.Now, Log: logging.Discard(), PasswordCost: passwordCost,
	})
	must.Do(t, err)
	defer func() { _ = s.Stop() }() // which fails for want of a database
	found, err := filepath.Glob(filepath.Join(folder, "postgres", "*", "postmaster.pid"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	line, _, _ := strings.Cut(string(must.Get(os.ReadFile(found[0]))(t)), "\n")
	must.Do(t, syscall.Kill(must.Get(strconv.Atoi(line))(t), syscall.SIGKILL))
	select {
	case err := <-s.Failed():
		must.Contain(t, "the end", err.Error(), "PostgreSQL has ended")
	case <-time.After(patience):
		t.Error("the system goes on without PostgreSQL")
	}
}
