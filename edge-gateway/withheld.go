package main

import (
	"os"
	"sync"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
)

// withheld is the outbox of readings that may not be published. It is opened when it
// is there or when there is something to be put into it, which is rare.
type withheld struct {
	open func() (*outbox.Outbox, error)

	mu     sync.Mutex
	opened *outbox.Outbox
}

// newWithheld returns the outbox of a folder.
func newWithheld(folder string, options outbox.Options) (*withheld, error) {
	w := &withheld{open: func() (*outbox.Outbox, error) { return outbox.Open(folder, options) }}
	if _, err := os.Stat(folder); err != nil {
		return w, nil
	}
	opened, err := w.open()
	w.opened = opened
	return w, err
}

// Append implements [gateway.Withheld].
func (w *withheld) Append(r outbox.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened == nil {
		opened, err := w.open()
		if err != nil {
			return err
		}
		w.opened = opened
	}
	return w.opened.Append(r)
}

// Stats implements [gateway.Withheld].
func (w *withheld) Stats() outbox.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened == nil {
		return outbox.Stats{}
	}
	return w.opened.Stats()
}

func (w *withheld) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened != nil {
		_ = w.opened.Close()
	}
}

var _ gateway.Withheld = (*withheld)(nil)
