package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// maxLogBytes bounds the log file. A full one is renamed to NAME.1, which replaces
// the one before: both together hold at most twice as much.
const maxLogBytes = 64 << 20

// logFile is a log that survives restarts and does not grow for ever. Its lines may
// be written by many goroutines.
type logFile struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// openLog opens a log to append to.
func openLog(path string, limit int64) (*logFile, error) {
	l := &logFile{path: path, limit: limit}
	return l, l.open()
}

func (l *logFile) open() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("log: %w", err), file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write implements [io.Writer]. Where no new file can be made, the full one grows on:
// its lines are worth more than its bound.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(line)) > l.limit && os.Rename(l.path, l.path+".1") == nil {
		full := l.file
		if l.open() == nil {
			_ = full.Close() // nothing is buffered
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("log: %w", err)
	}
	return n, nil
}

// Close closes the file.
func (l *logFile) Close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}
