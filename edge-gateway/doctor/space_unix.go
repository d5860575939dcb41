//go:build unix

package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeSpace is what an ordinary user may still write to the disk of a folder, in
// bytes.
func freeSpace(dir string) (int64, error) {
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil {
		return 0, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return int64(found.Bavail) * int64(found.Bsize), nil //nolint:gosec // no disk has 2^63 bytes
}
