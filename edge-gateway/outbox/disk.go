package outbox

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// disk is what an outbox asks of the file system; tests put a failing one in
// its place.
type disk interface {
	// Create makes a file that must not exist.
	Create(path string) (file, error)
	// Open opens a file that exists, to read: also on a disk that has become read-only.
	Open(path string) (file, error)
	// Edit opens a file to read and to write in place, and makes it if need be.
	Edit(path string) (file, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncFolder makes the names in a folder durable.
	SyncFolder(path string) error
}

type file interface {
	io.Writer
	io.ReaderAt
	io.WriterAt
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// osDisk is the real file system.
type osDisk struct{}

func (osDisk) Create(path string) (file, error) {
	return open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
}

func (osDisk) Open(path string) (file, error) {
	return open(path, os.O_RDONLY)
}

func (osDisk) Edit(path string) (file, error) {
	return open(path, os.O_CREATE|os.O_RDWR)
}

// open keeps a failed open from becoming a file that is not nil.
func open(path string, flags int) (file, error) {
	opened, err := os.OpenFile(path, flags, 0o600) //nolint:gosec // in the outbox's own folder
	if err != nil {
		return nil, err //nolint:wrapcheck // says operation and path itself
	}
	return opened, nil
}

func (osDisk) Rename(from, to string) error {
	return os.Rename(from, to) //nolint:wrapcheck // says operation and path itself
}

func (osDisk) Remove(path string) error {
	return os.Remove(path) //nolint:wrapcheck // says operation and path itself
}

func (osDisk) SyncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // has no such operation; NTFS journals names itself
	}
	folder, err := os.Open(path) //nolint:gosec // the outbox's own folder
	if err != nil {
		return err //nolint:wrapcheck // says operation and path itself
	}
	defer func() { _ = folder.Close() }()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
