package api

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestConditional shows contract 1.15 through the whole API: compressed or not, an answer
// is 304 until it is another.
func TestConditional(t *testing.T) {
	t.Parallel()
	a := newTestAPI(t).customer(t)
	rooms := fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)
	// The last is long enough to be compressed.
	for _, path := range []string{rooms, "/api/v1/rules", "/api/v1/rules/presets"} {
		first := a.unless(t, path, "")
		tag := first.header.Get("ETag")
		if first.status != http.StatusOK || tag == "" || first.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s: %d with tag %q and %q", path, first.status, tag, first.header.Get("Cache-Control"))
		}
		if again := a.unless(t, path, `W/"other", `+tag); again.status != http.StatusNotModified || len(again.body) > 0 || again.header.Get("ETag") != tag {
			t.Errorf("%s: %d %q with tag %q, want 304 and %q", path, again.status, again.body, again.header.Get("ETag"), tag)
		}
		if other := a.unless(t, path, `W/"other"`); !bytes.Equal(other.body, first.body) {
			t.Errorf("%s: %d %q, want the first answer", path, other.status, other.body)
		}
	}
	before := a.unless(t, rooms, "")
	a.room(t, "Hall")
	if now := a.unless(t, rooms, before.header.Get("ETag")); now.status != http.StatusOK || bytes.Equal(now.body, before.body) {
		t.Errorf("%d %q after a change", now.status, now.body)
	}
}

// TestSilenceThatLastsIsNotModified polls while a sensor is silent for another minute:
// nothing has changed.
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
		first := a.unless(t, path, "")
		if !bytes.Contains(first.body, []byte("No reading for more than 30 min")) {
			t.Fatalf("%s: %d %s", path, first.status, first.body)
		}
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
		method, kind, own, want string
		status, length          int
	}{
		"a file":        {http.MethodGet, "text/csv", "", "", http.StatusOK, 100},
		"a change":      {http.MethodPut, "application/json", "", "", http.StatusOK, 100},
		"an error":      {http.MethodGet, "application/json", "", "", http.StatusNotFound, 100},
		"a tag":         {http.MethodGet, "application/json", `"own"`, `"own"`, http.StatusOK, 100},
		"a long answer": {http.MethodGet, "application/json", "", "", http.StatusOK, maxTagged + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			recorder := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(t.Context(), test.method, "/", nil)
			request.Header.Set("If-None-Match", "*")
			handler.ServeHTTP(recorder, request)
			if got := recorder.Header().Get("ETag"); recorder.Code != test.status || recorder.Body.Len() != test.length || got != test.want {
				t.Errorf("%d, %d bytes, tag %q, want %d, %d, %q", recorder.Code, recorder.Body.Len(), got, test.status, test.length, test.want)
			}
		})
	}
}
