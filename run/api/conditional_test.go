package api

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// TestConditional shows contract 1.15 through the whole API: compressed or not, an answer is 304 until it is another.
func TestConditional(t *testing.T) {
	t.Parallel()
	a := newTestAPI(t).customer(t)
	rooms := fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)
	// The last is long enough to be compressed.
	for _, path := range []string{rooms, "/api/v1/rules", "/api/v1/rules/presets"} {
		first := a.unless(t, path, "").is(t, http.StatusOK)
		tag := first.header.Get("ETag")
		must.Equal(t, path+" has a tag", true, tag != "")
		must.Equal(t, "Cache-Control", "no-store", first.header.Get("Cache-Control"))
		again := a.unless(t, path, `W/"other", `+tag).is(t, http.StatusNotModified)
		must.Equal(t, path+": body, tag", []string{"", tag}, []string{string(again.body), again.header.Get("ETag")})
		must.Equal(t, path, string(first.body), string(a.unless(t, path, `W/"other"`).body))
	}
	before := a.unless(t, rooms, "")
	a.room(t, "Hall")
	now := a.unless(t, rooms, before.header.Get("ETag")).is(t, http.StatusOK)
	must.Equal(t, "the same after a change", false, bytes.Equal(now.body, before.body))
}

// TestSilenceThatLastsIsNotModified polls while a sensor is silent for another minute: nothing has changed.
func TestSilenceThatLastsIsNotModified(t *testing.T) {
	t.Parallel()
	// The overview's day moves on each ten minutes: the next minute begins no new ones.
	var begin time.Duration
	if into := time.Since(time.Now().Truncate(10 * time.Minute)); into > 8*time.Minute {
		begin = 10*time.Minute - into
	}
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	s.judge(t, "n1", time.Now().Add(-31*time.Minute), 20)
	for _, path := range []string{"/api/v1/incidents", "/api/v1/overview"} {
		s.forward(begin)
		first := a.unless(t, path, "").has(t, 200, "No reading for more than 30 min")
		for after, want := range map[time.Duration]int{time.Minute: http.StatusNotModified, 10 * time.Minute: http.StatusOK} {
			s.forward(begin + after)
			a.unless(t, path, first.header.Get("ETag")).is(t, want)
		}
	}
}

// TestConditionalLeavesTheRest shows what has no tag (contract 1.15), and that none of it is lost.
func TestConditionalLeavesTheRest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, kind, own string
		status, length    int
	}{
		"a file":        {http.MethodGet, "text/csv", "", http.StatusOK, 100},
		"a change":      {http.MethodPut, "application/json", "", http.StatusOK, 100},
		"an error":      {http.MethodGet, "application/json", "", http.StatusNotFound, 100},
		"a tag":         {http.MethodGet, "application/json", `"own"`, http.StatusOK, 100},
		"a long answer": {http.MethodGet, "application/json", "", http.StatusOK, maxTagged + 1},
	} {
		handler := conditional(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.kind)
			if test.own != "" {
				w.Header().Set("ETag", test.own)
			}
			w.WriteHeader(test.status)
			for range test.length {
				_, _ = w.Write([]byte("x"))
			}
		}))
		got := answer(t, handler, test.method, "/", "", map[string]string{"If-None-Match": "*"}).is(t, test.status)
		must.Equal(t, name+": tag, bytes", fmt.Sprint(test.own, test.length), fmt.Sprint(got.header.Get("ETag"), len(got.body)))
	}
}
