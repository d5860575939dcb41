package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/tooltest"
)

// folderOfChild makes this test binary start a server in the folder it names, say so, and wait to be killed.
const folderOfChild = "COLDAISLE_TEST_POSTGRES_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(folderOfChild)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := postgres.Start(context.Background(), options(dir)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	select {}
}

func TestServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), folderOfChild+"="+dir)
	output := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	if line != "started\n" {
		_ = command.Process.Kill()
		_ = command.Wait()
		if strings.HasPrefix(line, postgres.ErrNone.Error()) {
			pgtest.SkipUnlessAvailable(t, fmt.Errorf("%w, says the child", postgres.ErrNone))
		}
		t.Fatalf("the child said %q, %v", line, err)
	}
	pid := postmaster(t, dir)
	if !alive(pid) {
		t.Fatal("the child's server does not run")
	}
	must.Do(t, command.Process.Kill())
	_ = command.Wait() // it was killed
	gone(t, pid)
}

func TestServerOfRootPassesAClosedFolder(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		tooltest.Skip(t, "only root runs the server as somebody else")
	}
	home := filepath.Join(t.TempDir(), "home")
	must.Do(t, os.Mkdir(home, 0o700))
	dir := filepath.Join(home, "postgres")
	first := start(t, dir)
	keep(t, first)
	must.Do(t, first.Stop())
	must.Equal(t, "rows", 3, count(t, start(t, dir)))
	must.Equal(t, "mode of the folder above", os.FileMode(0o700), must.Get(os.Stat(home))(t).Mode().Perm())
}
