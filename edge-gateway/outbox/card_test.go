package outbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// deadCard is a disk that has become read-only, as the kernel does it to a file system
// with errors.
type deadCard struct {
	osDisk

	dead atomic.Bool
}

func (d *deadCard) Create(path string) (file, error) {
	if d.dead.Load() {
		return nil, syscall.EROFS
	}
	return d.osDisk.Create(path)
}

func (d *deadCard) Edit(path string) (file, error) {
	if d.dead.Load() {
		return nil, syscall.EROFS
	}
	return d.osDisk.Edit(path)
}

func (d *deadCard) Remove(path string) error {
	if d.dead.Load() {
		return syscall.EROFS
	}
	return d.osDisk.Remove(path)
}

// TestCardThatDies lets the disk become read-only under an open outbox and brings it
// back: what was kept can be taken out all the time, once.
func TestCardThatDies(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			disk := &deadCard{}
			options := Options{Clock: time.Now, MaxBytes: 64 << 10, disk: disk}
			box, err := Open(dir, options)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				if err := box.Append(rec(fmt.Sprint("before ", i))); err != nil {
					t.Fatal(err)
				}
			}
			if restart {
				if err := box.Close(); err != nil {
					t.Fatal(err)
				}
			}
			disk.dead.Store(true)
			if restart {
				if box, err = Open(dir, options); err != nil {
					t.Fatalf("open: %v", err)
				}
			} else {
				box.mu.Lock()
				_ = box.active.Close() // an open file fails too
				box.mu.Unlock()
			}
			if err := box.Append(rec("refused")); err == nil {
				t.Error("a dead card takes a reading")
			}
			taken := 0
			for {
				messages, err := box.Next(64)
				if err != nil {
					t.Fatal(err)
				}
				if len(messages) == 0 {
					break
				}
				taken += len(messages)
				if err := box.Consume(messages); err != nil && !errors.Is(err, syscall.EROFS) {
					t.Fatal(err)
				}
			}
			if got := box.Stats().Pending; taken != 300 || got != 0 {
				t.Errorf("%d of 300 come out, %d wait", taken, got)
			}
			disk.dead.Store(false)
			if err := box.Append(rec("again")); err != nil {
				t.Errorf("a card that is back: %v", err)
			}
			if got := all(t, box); len(got) != 1 {
				t.Errorf("%q come out of a card that is back", got)
			}
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
