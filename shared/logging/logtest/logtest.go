// Package logtest collects what a program or a logger under test has written so far, to be
// read while it writes. Only tests use it.
package logtest

import (
	"strings"
	"sync"
)

// Buffer is written by several goroutines, or by a program. Its zero value is empty and
// ready. It embeds no buffer: os/exec would write by that one's ReadFrom, past the lock.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p) //nolint:wrapcheck // it has none
}

// String is all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take returns what was written since the last call.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}
