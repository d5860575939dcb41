package gateway

import (
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// TestPace lets the backlog meet lines of several kinds.
func TestPace(t *testing.T) {
	t.Parallel()
	t.Run("on a good line", func(t *testing.T) {
		t.Parallel()
		p := newBatchPacer()
		for range 10 {
			must.Equal(t, "pause after a batch of 2 ms", 2*time.Millisecond, p.next(2*time.Millisecond, false))
		}
		must.Equal(t, "a batch has readings after ten quick ones", largestBatch, p.size)
		if pause := p.next(0, false); pause < time.Millisecond {
			t.Errorf("a pause of %s leaves a live reading no room", pause)
		}
	})
	t.Run("with live readings", func(t *testing.T) {
		t.Parallel()
		p := newBatchPacer()
		for range 10 {
			p.next(2*time.Millisecond, false)
		}
		if pause := p.next(2*time.Millisecond, true); pause != 6*time.Millisecond || p.size != largestWithLive {
			t.Errorf("a pause of %s and batches of %d, want three times the batch and %d", pause, p.size, largestWithLive)
		}
		must.Equal(t, "a pause on a long line", 100*time.Millisecond+longestWithLive, p.next(100*time.Millisecond, true))
		p.next(2*time.Millisecond, true)
		if pause := p.next(2*time.Millisecond, false); pause != 2*time.Millisecond || p.size != 2*largestWithLive {
			t.Errorf("after them a pause of %s and batches of %d", pause, p.size)
		}
	})
	t.Run("on a line that a large batch fills", func(t *testing.T) {
		t.Parallel()
		p := newBatchPacer()
		// 20 ms there and back, and 1 ms for each reading.
		took := func() time.Duration { return 20*time.Millisecond + time.Duration(p.size)*time.Millisecond }
		for range 20 {
			p.next(took(), false)
		}
		largest := 0
		for range 100 {
			p.next(took(), false)
			largest = max(largest, p.size)
		}
		if largest > 16 {
			t.Errorf("batches of %d readings delay a live one by %d ms", largest, largest)
		}
		if p.size < 1 {
			t.Errorf("a batch has %d readings", p.size)
		}
	})
	t.Run("on a line that has become slow for good", func(t *testing.T) {
		t.Parallel()
		p := newBatchPacer()
		p.next(2*time.Millisecond, false)
		for range 200 {
			p.next(300*time.Millisecond, false)
		}
		if p.size < largestBatch/2 {
			t.Errorf("batches of %d readings for ever, since the line was faster once", p.size)
		}
	})
}
