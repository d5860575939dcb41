// Package statefile writes small files of state: a gateway's nodes, clock and enrolment, and a
// watch's journal.
package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces a file atomically: after a power failure it is either the old or the new
// one, and once Write has returned it is the new one. Only the owner of the folder may read
// it, so that a command run as root leaves a file that the service can read.
func Write(path string, content []byte) error {
	temporary := path + ".new"
	err := create(temporary, content)
	if err == nil {
		err = giveToOwner(temporary, filepath.Dir(path))
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(path string) error {
	folder, err := os.Open(path) //nolint:gosec // of the gateway's own files
	if err != nil {
		return err //nolint:wrapcheck // says operation and path itself
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Mkdir creates a folder, unless it exists, and gives it to the owner of its parent: a command
// run as root may be the first to need it, and the service must be able to read it.
func Mkdir(path string) error {
	_, missing := os.Stat(path)
	err := os.MkdirAll(path, 0o700)
	if err == nil && missing != nil {
		err = giveToOwner(path, filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("make the folder %s: %w", path, err)
	}
	return nil
}

func create(path string, content []byte) error {
	// An interrupted write may have left a file of that name, with other permissions.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err //nolint:wrapcheck // the caller does
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the setting of whoever runs the gateway
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// giveToOwner gives a file to the owner of a folder. Only root can, and only root needs to.
func giveToOwner(path, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var owner syscall.Stat_t
	if err := syscall.Stat(folder, &owner); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid)) //nolint:wrapcheck // the caller does
}
