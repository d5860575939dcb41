//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// lock locks the data folder, so that no second system uses it. The kernel releases
// the lock when the process ends, however it ends.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // in the folder that the user names
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("another Coldaisle runs on this data folder: stop it, or choose another folder with --data (%w)", err)
	}
	return func() { _ = file.Close() }, nil
}
