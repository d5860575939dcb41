package gateway

import (
	"net/http"
	"slices"
	"testing"

	"coldaisle.dev/shared/logging"
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
