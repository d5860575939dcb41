package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// TestEviction opens two connections from each of two addresses, one after the other, all
// that there may be, has requests begin on some, and opens one from a third address.
func TestEviction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy []int
		want int
	}{
		"the one that is idle for the longest": {nil, 0},
		"requests under way are spared":        {[]int{0}, 1},
		"of other addresses too":               {[]int{0, 2}, 1},
		"idle ones of another address first":   {[]int{0, 2, 1}, 3},
		"the oldest request":                   {[]int{2, 0, 1, 3}, 2},
	} {
		l := newConnections(t.Context(), nil, 4, 4, logging.Discard())
		var open []*connection
		for _, address := range []string{"a", "b", "a", "b"} {
			open = append(open, &connection{among: l, address: address})
			l.admit(open[len(open)-1])
			l.stateChanged(open[len(open)-1], http.StateNew)
		}
		for _, i := range c.busy {
			l.stateChanged(open[i], http.StateActive)
		}
		victim, ok := l.admit(&connection{among: l, address: "c"})
		if got := slices.Index(open, victim); !ok || got != c.want {
			t.Errorf("%s: connection %d is closed, want %d; the new one is admitted: %t", name, got, c.want, ok)
		}
	}
}

// TestNodeFromTheFuture has all that a source may bring be a node that the list of nodes has from a time when the
// clock was years ahead.
func TestNodeFromTheFuture(t *testing.T) {
	t.Parallel()
	nodes, now := newNodeTable(9), time.Now()
	nodes.remember(NodeInfo{NodeID: "gone", Source: "poller", LastSeen: now.AddDate(10, 0, 0)})
	must.Equal(t, "the source's next node is admitted", true, nodes.admit("new", "", "poller", "10.0.0.7", 1, now))
	must.Equal(t, "its third, at once", false, nodes.admit("third", "", "poller", "10.0.0.7", 1, now))
}

// TestPace lets the backlog meet lines of several kinds.
func TestPace(t *testing.T) {
	t.Parallel()
	good := newBatchPacer()
	for range 10 {
		must.Equal(t, "pause after a batch of 2 ms", 2*time.Millisecond, good.next(2*time.Millisecond, false))
	}
	must.Equal(t, "a batch has readings after ten quick ones", largestBatch, good.size)
	pause := good.next(0, false)
	must.Hold(t, pause >= time.Millisecond, "a pause of %s leaves a live reading no room", pause)

	// With live readings the pause is three times the batch.
	must.Equal(t, "pause beside live readings", 6*time.Millisecond, good.next(2*time.Millisecond, true))
	must.Equal(t, "a batch has readings beside live ones", largestWithLive, good.size)
	must.Equal(t, "a pause on a long line", 100*time.Millisecond+longestWithLive, good.next(100*time.Millisecond, true))
	good.next(2*time.Millisecond, true)
	must.Equal(t, "pause after them", 2*time.Millisecond, good.next(2*time.Millisecond, false))
	must.Equal(t, "a batch has readings after them", 2*largestWithLive, good.size)

	// A line that a large batch fills: 20 ms there and back, and 1 ms for each reading.
	filled := newBatchPacer()
	took := func() time.Duration { return 20*time.Millisecond + time.Duration(filled.size)*time.Millisecond }
	for range 20 {
		filled.next(took(), false)
	}
	for range 100 {
		filled.next(took(), false)
		must.Hold(t, filled.size >= 1 && filled.size <= 16,
			"batches of %d readings delay a live one by as many ms", filled.size)
	}

	// A line that has become slow for good.
	slow := newBatchPacer()
	slow.next(2*time.Millisecond, false)
	for range 200 {
		slow.next(300*time.Millisecond, false)
	}
	must.Hold(t, slow.size >= largestBatch/2,
		"batches of %d readings for ever, since the line was faster once", slow.size)
}

// TestOutageWhileTheClockIsSet has the time arrive during an outage of a minute.
func TestOutageWhileTheClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUplink(time.Unix(0, 0))
		u.markDown(time.Unix(60, 0), errors.New("no network"))
		time.Sleep(time.Minute)
		away, back := u.answered(time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), true)
		must.Equal(t, "away", time.Minute, away)
		must.Equal(t, "back", true, back)
	})
}

// TestLocalSocket replaces the socket of a process that was killed, and nothing else that has its name.
func TestLocalSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "live")
	must.Do(t, os.WriteFile(path, []byte("notes"), 0o600))
	_, err := ListenLocal(t.Context(), path)
	must.Contain(t, "the error of a file", fmt.Sprint(err), "is no socket")
	must.Equal(t, "the file", "notes", string(must.Get(os.ReadFile(path))(t)))
	must.Do(t, os.Remove(path))
	left, ok := must.Get(ListenLocal(t.Context(), path))(t).(*net.UnixListener)
	must.Hold(t, ok, "no unix socket")
	left.SetUnlinkOnClose(false)
	must.Do(t, left.Close())
	must.Do(t, must.Get(ListenLocal(t.Context(), path))(t).Close())
}
