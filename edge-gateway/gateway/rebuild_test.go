package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// restartable is a site whose gateway can be stopped and started again over its outbox.
type restartable struct {
	*site

	dir  string
	stop func()
}

func newRestartable(t *testing.T) *restartable {
	t.Helper()
	s := &restartable{site: newSite(t), dir: t.TempDir()}
	s.start()
	return s
}

func (s *restartable) start() {
	s.tb.Helper()
	box := openBox(s.tb, s.dir, s.clock)
	s.box = box
	s.open(gateway.Config{ProbeEvery: time.Millisecond}, box)
	stop := s.run()
	s.stop = func() { stop(); _ = box.Close() }
}

// TestWindowsAreRebuilt sends the same readings to a gateway whose Pub/Sub is unavailable now
// and then, that is restarted in outages and while it drains, and to one that nothing
// happens to: what arrives is the same, windows included. Contract 9.1.
func TestWindowsAreRebuilt(t *testing.T) {
	t.Parallel()
	const readings = 400 // of two nodes, each every 30 seconds
	untroubled := newSite(t)
	s := newRestartable(t)
	send := func(i int) {
		body := fmt.Sprintf(`{"id":"%d","node_id":"n%d","temperature":%g,"humidity":%g}`, i, i%2, 20+float64(i%37)/10, 40+float64(i%23)/100)
		untroubled.message(body)
		if status := s.message(body); status != http.StatusOK && status != http.StatusInternalServerError {
			t.Fatalf("answered %d", status)
		}
	}
	for i := range readings {
		untroubled.pass(15 * time.Second)
		s.pass(15 * time.Second)
		switch i {
		case 150, 200, 204, 260:
			s.published.fail(errAway)
		case 202, 230:
			s.published.fail(nil)
			must.Eventually(t, "delivery", func() bool {
				return s.box.Stats().Pending == 0 && strings.Contains(s.health(), `"status":"healthy"`)
			})
		case 170, 180, 270:
			s.stop()
			s.start()
		}
		send(i)
	}
	s.stop()
	left, done := 70, make(chan struct{})
	s.published.judge(func(_ context.Context, _ gateway.Message, kept bool) error {
		if !kept {
			return nil
		}
		if left--; left == -1 {
			close(done)
		}
		if left < 0 {
			return errAway
		}
		return nil
	})
	s.start()
	<-done
	s.stop()
	s.published.fail(nil)
	s.start()
	must.Eventually(t, "the rest of the backlog", func() bool { return s.box.Stats().Pending == 0 })

	arrived := func(r *record) map[reading.Identity]wire.Data {
		found := map[reading.Identity]wire.Data{}
		for _, data := range r.all() {
			found[data.Reading.Identity()] = data
		}
		return found
	}
	want, got := arrived(untroubled.published), arrived(s.published)
	if len(want) != readings || len(got) != readings {
		t.Fatalf("%d and %d readings arrived, want %d", len(want), len(got), readings)
	}
	differ := 0
	for id, data := range want {
		if diff := cmp.Diff(data, got[id]); diff != "" {
			if differ++; differ < 3 {
				t.Errorf("reading %s (-untroubled +troubled):\n%s", id.MessageID, diff)
			}
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d differ", differ, readings)
	}
}
