package statefile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/must"
)

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(path+".new", []byte("left over"), 0o644))
	for _, content := range []string{"one", "two"} {
		must.Do(t, statefile.Write(path, []byte(content)))
		must.Equal(t, "the file holds", content, string(must.Get(os.ReadFile(path))(t)))
	}
	info := must.Get(os.Stat(path))(t)
	must.Hold(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600, "the file is open to others: %v", info.Mode())
	must.Equal(t, "a file below a file can be written", false, statefile.Write(filepath.Join(path, "below"), nil) == nil)
}

// TestFolderOfAServiceThatHasStarted makes, as root, a folder in one of a service's, and a file in it: both
// are the service's.
func TestFolderOfAServiceThatHasStarted(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	owner := os.Getuid()
	if owner == 0 {
		owner = 64023
		must.Do(t, os.Chown(state, owner, owner))
	}
	folder := filepath.Join(state, "outbox")
	for range 2 {
		must.Do(t, statefile.Mkdir(folder))
	}
	file := filepath.Join(folder, "file")
	must.Do(t, statefile.Write(file, nil))
	for _, path := range []string{folder, file} {
		info, _ := must.Get(os.Stat(path))(t).Sys().(*syscall.Stat_t)
		must.Equal(t, "the owner of "+filepath.Base(path), owner, int(info.Uid))
	}
	must.Equal(t, "a folder below a file can be made", false, statefile.Mkdir(filepath.Join(file, "below")) == nil)
}
