//go:build unix

package outbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock keeps other processes off a folder for as long as this one lives,
// however it ends.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // in the outbox's own folder
	if errors.Is(err, syscall.EROFS) {
		if f, err = os.Open(path); errors.Is(err, os.ErrNotExist) { //nolint:gosec // in the outbox's own folder
			return func() error { return nil }, nil // nobody can write there
		}
	}
	if err != nil {
		return nil, fmt.Errorf("outbox lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("outbox lock %s: %w", path, err)
	}
	// Unlocked, not only closed: a child that is just being started still has a
	// copy of the descriptor, and with it the lock.
	return func() error { return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close()) }, nil
}
