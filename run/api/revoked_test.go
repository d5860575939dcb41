package api

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
)

// heldBody is a body whose first byte comes after something else: the request is let in by then.
type heldBody struct {
	io.Reader

	before func()
}

func (b *heldBody) Read(part []byte) (int, error) {
	b.before()
	b.before = func() {}
	return b.Reader.Read(part)
}

// TestRevokedWhileItWaits revokes what a request waits with: of the next change it learns nothing. Contract 2.7.
func TestRevokedWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"key", "person"} {
		s, owner := newTestCustomer(t)
		s.running(t)
		owner.heldSensor(t, "n1")
		viewer, key := owner.with(t, "viewer"), owner.key(t, `"scope":"read"`)
		token, revoke := viewer.token, fmt.Sprintf("/api/v1/persons/%d", viewer.person)
		if by == "key" {
			token, revoke = key.text, fmt.Sprintf("/api/v1/api-keys/%d", key.id)
		}
		answer := make(chan reply, 1)
		go func() { answer <- s.call(t, token, http.MethodGet, changesPath+"?wait_s=30&after=0", "") }()
		must.Eventually(t, "the listener, which runs while somebody waits", func() bool { return s.listens(t) })
		must.Equal(t, by+" is revoked", 2, s.call(t, owner.token, http.MethodDelete, revoke, "").status/100)
		s.judge(t, "n1", s.now(), 60)
		(<-answer).is(t, 401)
	}
}

// TestRevokedWhileTheBodyComes revokes what a request was let in with before its body has come: the
// change is refused as the next request is, and nothing has changed. Contract 2.7.
func TestRevokedWhileTheBodyComes(t *testing.T) {
	t.Parallel()
	s, owner := newTestCustomer(t)
	room := owner.room(t, "Hall")
	key := owner.key(t, `"scope":"write"`)
	profile, person := fmt.Sprintf("/api/v1/customers/%d", owner.id), func(p *testCustomer) string { return fmt.Sprintf("/api/v1/persons/%d", p.person) }
	newPassword := func(p *testCustomer) {
		s.call(t, p.token, http.MethodPatch, profile, `{"password":"NewPassw0rd"}`).is(t, 200)
	}
	for name, c := range map[string]struct {
		method, path, body, token string // the person's own where there is none
		revoke                    func(p *testCustomer)
	}{
		"new password, new key":        {http.MethodPost, "/api/v1/api-keys", `{"name":"x","scope":"write"}`, "", newPassword},
		"new password, newer password": {http.MethodPatch, profile, `{"password":"Th1efsOwn","email":"thief@example.com"}`, "", newPassword},
		"another role": {http.MethodPost, "/api/v1/invitations", `{"email":"friend@example.com","role":"admin"}`, "", func(p *testCustomer) {
			owner.call(t, owner.token, http.MethodPatch, person(p), `{"role":"viewer"}`).is(t, 200)
		}},
		"removed": {http.MethodPut, fmt.Sprintf("/api/v1/server_rooms/update_room/%d", room), `{"name":"Mine"}`, "", func(p *testCustomer) {
			owner.call(t, owner.token, http.MethodDelete, person(p), "").is(t, 200)
		}},
		"key": {http.MethodPost, "/api/v1/server_rooms/new_room", `{"name":"Mine"}`, key.text, func(*testCustomer) {
			owner.call(t, owner.token, http.MethodDelete, fmt.Sprintf("/api/v1/api-keys/%d", key.id), "").is(t, 204)
		}},
	} {
		p := owner.with(t, "admin")
		var tables string
		body := &heldBody{strings.NewReader(c.body), func() {
			c.revoke(p)
			tables = s.tables(t)
		}}
		request := httptest.NewRequestWithContext(t.Context(), c.method, c.path, body)
		request.ContentLength = int64(len(c.body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+cmp.Or(c.token, p.token))
		recorder := httptest.NewRecorder()
		s.api.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusUnauthorized || recorder.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %d %s", name, recorder.Code, recorder.Body)
		}
		must.Equal(t, name+": changed", tables, s.tables(t))
	}
}

// TestChangesOfOneAccountKeepNobodyOut has many changes of an account wait for its lock: others read
// and change as before. Contract 1.9.
func TestChangesOfOneAccountKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s, busy := newTestCustomer(t)
	other := s.customer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lock := must.Get(pgx.Connect(ctx, s.pool.Config().ConnString()))(t)
	defer func() { _ = lock.Close(context.WithoutCancel(ctx)) }()
	must.Get(lock.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('changes of ' || $1::bigint, 0))`, busy.id))(t)
	var changes sync.WaitGroup
	for range 30 {
		changes.Go(func() {
			busy.call(t, busy.token, http.MethodPost, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`).is(t, 201)
		})
	}
	must.Eventually(t, "changes wait for the lock", func() bool {
		var waiting int
		must.Do(t, lock.QueryRow(ctx, `SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&waiting))
		return waiting >= max(1, int(s.pool.Config().MaxConns)/2)
	})
	for range 5 {
		other.call(t, other.token, http.MethodGet, "/api/v1/overview", "").is(t, 200)
	}
	must.Get(lock.Exec(ctx, `SELECT pg_advisory_unlock_all()`))(t)
	changes.Wait()
}
