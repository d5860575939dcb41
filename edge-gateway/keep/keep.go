// Package keep writes small files of state: a gateway's nodes, clock and enrolment, and a
// watch's journal.
package keep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File replaces a file atomically: after a power failure it is either the old or the new
// one. Only the owner of the folder may read it, so that a command run as root leaves a file
// that the service can read.
func File(path string, content []byte) error {
	beside := path + ".new"
	err := write(beside, content)
	if err == nil {
		err = giveToOwner(beside, filepath.Dir(path))
	}
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Folder makes a folder unless it exists. It has the owner of the one above: a service that has
// started before has that one, and could read nothing in a folder that root makes there.
func Folder(path string) error {
	above := filepath.Dir(path)
	err := os.MkdirAll(above, 0o700)
	if err == nil {
		err = os.Mkdir(path, 0o700)
	}
	switch {
	case err == nil:
		err = giveToOwner(path, above)
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	if err != nil {
		return fmt.Errorf("make the folder %s: %w", path, err)
	}
	return nil
}

func write(path string, content []byte) error {
	// An interrupted write may have left a file of that name, with other permissions.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err //nolint:wrapcheck // File does
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the setting of whoever runs the gateway
	if err != nil {
		return err //nolint:wrapcheck // File does
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// giveToOwner gives a file to the owner of a folder; only root can do so, and need do so.
func giveToOwner(path, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err //nolint:wrapcheck // File does
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid)) //nolint:wrapcheck // File does
}
