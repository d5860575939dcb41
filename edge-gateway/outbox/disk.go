package outbox

import (
	"io"
	"os"

	"coldaisle.dev/edge-gateway/statefile"
)

// disk is the part of the file system that an outbox uses; tests substitute a failing one.
type disk interface {
	// Open opens a file by flags of package os, such as [toRead].
	Open(path string, flags int) (file, error)
	Remove(path string) error
	// SyncFolder makes the names in a folder durable.
	SyncFolder(path string) error
}

const (
	toRead   = os.O_RDONLY // also on a disk that has become read-only
	toCreate = os.O_CREATE | os.O_EXCL | os.O_RDWR
	toEdit   = os.O_CREATE | os.O_RDWR // in place
)

type file interface {
	io.Writer
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Close() error
}

type osDisk struct{}

func (osDisk) Open(path string, flags int) (file, error) {
	opened, err := os.OpenFile(path, flags, 0o600) //nolint:gosec // in the outbox's own folder
	if err != nil {
		return nil, err //nolint:wrapcheck // names operation and path itself; a nil *os.File must not become a non-nil file
	}
	return opened, nil
}

func (osDisk) Remove(path string) error {
	return os.Remove(path) //nolint:wrapcheck // says operation and path itself
}

func (osDisk) SyncFolder(path string) error {
	return statefile.SyncFolder(path) //nolint:wrapcheck // says operation and path itself
}
