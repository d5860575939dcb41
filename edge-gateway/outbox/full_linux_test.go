package outbox

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// mounted is the folder of a file system of its own.
func mounted(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, size); err != nil {
		tooltest.Unable(t, "no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestFullFileSystem fills a real file system of 256 KiB.
func TestFullFileSystem(t *testing.T) {
	t.Parallel()
	dir := mounted(t, "size=256k")
	box := open(t, dir, options())
	message := strings.Repeat("m", 1000)
	fill := func() int {
		for n := range 1000 {
			err := box.Append(rec(message))
			if errors.Is(err, syscall.ENOSPC) {
				return n
			}
			must.Do(t, err)
		}
		t.Fatal("the file system does not fill")
		return 0
	}
	accepted := fill()
	must.Hold(t, accepted >= 200, "%d messages fit into 256 KiB", accepted)
	for range 10 {
		must.Fail(t, "Append on a full disk", box.Append(rec(message)), syscall.ENOSPC)
	}
	must.Do(t, box.Close())
	box = open(t, dir, options())
	must.Equal(t, "messages that come out, of those accepted", accepted, len(drain(t, box, 50)))
	// The space is there again, as soon as the file system has let go of what was deleted.
	again := 0
	must.Eventually(t, "200 messages fit after the backlog went out", func() bool {
		again += fill()
		return again >= 200
	})
	must.Do(t, box.Close())
}

// TestReadOnlyFileSystem opens an outbox on a real file system that was remounted
// read-only, as the kernel does when a card fails.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir := mounted(t, "size=1m")
	box := open(t, dir, options())
	add(t, box, numbered(0, 50)...)
	must.Do(t, box.Close())
	must.Eventually(t, "no child that is being started has a file of it open", func() bool {
		return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "") == nil
	})
	box = open(t, dir, options())
	must.Fail(t, "Append", box.Append(rec("refused")), syscall.EROFS)
	must.Equal(t, "messages wait", 50, box.Stats().Pending)
	must.Fail(t, "its state", box.Stats().Err, syscall.EROFS)
	messages := must.Get(box.Next(100))(t)
	must.Equal(t, "messages that come out", 50, len(messages))
	must.Fail(t, "Consume", box.Consume(messages), syscall.EROFS)
	must.Equal(t, "messages that come a second time", 0, len(must.Get(box.Next(100))(t)))
}
