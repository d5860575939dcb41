package statefile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestPowerCut finds a file on a copy of its disk that is made as soon as it is written.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	disk, copied := filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "disk")
	must.Do(t, os.WriteFile(disk, make([]byte, 16<<20), 0o600))
	mkfs := tooltest.Program(t, "mkfs.ext4", "/usr/sbin/")
	out, err := exec.CommandContext(t.Context(), mkfs, "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk).CombinedOutput()
	must.Hold(t, err == nil, "mkfs.ext4: %v: %s", err, out)
	must.Do(t, statefile.Write(filepath.Join(mounted(t, disk), "key"), []byte("kept")))
	must.Do(t, os.WriteFile(copied, must.Get(os.ReadFile(disk))(t), 0o600))
	content, err := os.ReadFile(filepath.Join(mounted(t, copied), "key"))
	must.Equal(t, "the file after a power cut", "kept", string(content))
	must.Do(t, err)
}

// mounted is the folder of the file system on a disk.
func mounted(t *testing.T, disk string) string {
	t.Helper()
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", disk, folder).CombinedOutput(); err != nil {
		tooltest.Skip(t, "no right to mount a disk: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, 0) })
	return folder
}
