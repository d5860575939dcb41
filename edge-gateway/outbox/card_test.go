package outbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// TestCardThatDies lets the disk become read-only under an open outbox and brings it
// back: what was kept can be taken out all the time, once.
func TestCardThatDies(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var dead atomic.Bool // as the kernel makes a file system with errors: read-only
			disk := hooked{hook: func(o operation, run func() error) error {
				if dead.Load() && (o.kind == "remove" || o.kind == "open" && o.flags != toRead) {
					return syscall.EROFS
				}
				return run()
			}}
			options := Options{Clock: time.Now, MaxBytes: 512 << 10, disk: disk}
			box := open(t, dir, options)
			add(t, box, numbered(0, 300)...)
			if restart {
				must.Do(t, box.Close())
			}
			dead.Store(true)
			if restart {
				box = open(t, dir, options)
			} else {
				box.mu.Lock()
				_ = box.active.Close() // an open file fails too
				box.mu.Unlock()
			}
			if err := box.Append(rec("refused")); err == nil {
				t.Error("a dead card takes a reading")
			}
			taken := 0
			for taken <= 300 {
				messages := must.Get(box.Next(64))(t)
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
			dead.Store(false)
			must.Do(t, box.Consume(nil)) // as an idle drain does: what a kill would leave now
			must.Equal(t, "consumed readings that would be sent a second time", 0, must.Get(Inspect(dir))(t).Pending)
			must.Do(t, box.Append(rec("again"))) // the card is back
			must.Equal(t, "messages out of a card that is back", 1, len(drain(t, box, 3)))
		})
	}
}
