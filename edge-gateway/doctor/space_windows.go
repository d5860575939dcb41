package doctor

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// freeSpace is what this user may still write to the disk of a folder, in bytes.
func freeSpace(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, fmt.Errorf("file system of %s: %w", dir, err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return int64(free), nil
}
