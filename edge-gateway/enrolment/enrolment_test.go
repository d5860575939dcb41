package enrolment_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/enrolment/enrolmenttest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/wire"
)

func agree(enrolment.Offer) bool { return true }

// TestEnrol shows contract 8.18.
func TestEnrol(t *testing.T) {
	t.Parallel()
	api := enrolmenttest.Start(t)
	folder := filepath.Join(t.TempDir(), "state")
	shown := enrolment.Offer{}
	_, err := enrolment.Enrol(t.Context(), folder, enrolmenttest.Code, api.URL, func(o enrolment.Offer) bool {
		shown = o
		return false
	})
	if !errors.Is(err, enrolment.ErrDeclined) || shown.Account != "ops@example.com" || shown.Name != "Cellar" || api.Key() != nil {
		t.Errorf("a declined enrolment showed %+v and ended with %v", shown, err)
	}
	must.Equal(t, "left by a declined enrolment", (*enrolment.Identity)(nil), must.Get(enrolment.Load(folder))(t))

	// The reply gets lost: the same code again is the same enrolment.
	api.Set(func(a *enrolmenttest.API) { a.Lost = true })
	must.Hold(t, must.Err(enrolment.Enrol(t.Context(), folder, enrolmenttest.Code, api.URL, agree)) != nil,
		"an enrolment without a reply is taken")
	key := api.Key()
	for _, code := range []string{enrolmenttest.Code, enrolmenttest.Code} {
		id := must.Get(enrolment.Enrol(t.Context(), folder, code, api.URL+"/", agree))(t)
		if id.GatewayID != enrolmenttest.ID || !key.Equal(api.Key()) {
			t.Errorf("enrolled as %s, with another key: %v", id.GatewayID, !key.Equal(api.Key()))
		}
	}
	id := must.Get(enrolment.Load(folder))(t)
	want := "ops@example.com, site, data, " + api.URL
	must.Equal(t, "kept is", want, strings.Join([]string{id.Account, id.ProjectID, id.Topic, id.API}, ", "))
	files := must.Get(os.ReadDir(folder))(t)
	must.Equal(t, "files in the folder", 1, len(files))
	nobodyElses(t, filepath.Join(folder, files[0].Name()))

	// Another machine cannot use the code, and another code changes nothing.
	_, err = enrolment.Enrol(t.Context(), t.TempDir(), enrolmenttest.Code, api.URL, agree)
	must.Contain(t, "the error of another machine", fmt.Sprint(err), "already enrolled")
	_, err = enrolment.Enrol(t.Context(), folder, "WRONG", api.URL, agree)
	must.Contain(t, "the error of an unknown code", fmt.Sprint(err), "unknown or has expired")
	must.Equal(t, "identity after a wrong code", id.GatewayID, must.Get(enrolment.Load(folder))(t).GatewayID)
}

func TestAddressOfTheAPI(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://api.example.com": true, "http://localhost:8000": true, "http://127.0.0.1:8000": true, "http://[::1]:8000": true,
		"http://api.example.com": false, "ftp://localhost": false, "api.example.com": false, "": false,
	} {
		must.Equal(t, fmt.Sprintf("%q is taken", address), ok, enrolment.CheckAPI(address) == nil)
	}
}

func TestGarbledIdentity(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"no json", `{}`, `{"gateway_id":"x","seed":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`} {
		folder := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(folder, "enrolment.json"), []byte(content), 0o600))
		_, err := enrolment.Load(folder)
		must.Contain(t, content, fmt.Sprint(err, "\n"), filepath.Join(folder, "enrolment.json")+": ", "with a new code\n")
	}
}

// nobodyElses holds that others cannot read a file.
func nobodyElses(t *testing.T, path string) {
	t.Helper()
	info := must.Get(os.Stat(path))(t)
	must.Hold(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600, "%s is open to others: %v", path, info.Mode())
}

// machine is an enrolled gateway whose system clock a test sets.
type machine struct {
	api     *enrolmenttest.API
	session *enrolment.Session
	folder  string
	clock   *clock.Clock
	wall    time.Time
	uptime  time.Duration
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{api: enrolmenttest.Start(t), wall: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	m.api.Set(func(a *enrolmenttest.API) { a.Time = func() time.Time { return m.wall } })
	m.folder = t.TempDir()
	id := must.Get(enrolment.Enrol(t.Context(), m.folder, enrolmenttest.Code, m.api.URL, agree))(t)
	system := func() time.Time { return m.wall }
	boot := clock.Boot{ID: [16]byte{1}, Uptime: func() time.Duration { return m.uptime }}
	m.clock = must.Get(clock.Open(filepath.Join(m.folder, "clock.json"), system, boot))(t)
	m.session = enrolment.NewSession(id, m.clock, system, "v1", true, logging.Discard())
	return m
}

// report sends one status.
func (m *machine) report(t *testing.T) {
	t.Helper()
	_, _ = m.session.Status(t.Context(), enrolment.Report{Role: "active", OutboxReadings: 3, Nodes: []wire.StatusNode{{NodeID: "n1"}}})
}

func (m *machine) pass(d time.Duration) {
	m.wall = m.wall.Add(d)
	m.uptime += d
}

// reply sets what the API answers and sends a status.
func (m *machine) reply(t *testing.T, change func(*enrolmenttest.API)) {
	t.Helper()
	m.api.Set(change)
	m.report(t)
}

func kind(err error) string {
	blocked, ok := errors.AsType[*enrolment.BlockedError](err)
	if !ok {
		return ""
	}
	return blocked.Kind()
}

// TestSession shows contract 8.19.
func TestSession(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	must.Equal(t, "before the first status publishing is blocked by", "status", kind(m.session.Ready()))
	m.report(t) // the API has none to give
	must.Equal(t, "after an answer without a token publishing is blocked by", "token", kind(m.session.Ready()))
	m.reply(t, func(a *enrolmenttest.API) { a.Reply.AccessToken, a.Reply.TokenExpiresAt = "one", m.wall.Add(time.Hour) })
	got := m.api.Statuses()[0]
	if got.Sequence != 1 || got.Version != "v1" || got.Role != "active" || got.OutboxReadings != 3 || len(got.Nodes) != 1 || !got.SentAt.Equal(m.wall) {
		t.Errorf("reported %+v", got)
	}
	token := must.Get(m.session.Token())(t)
	must.Equal(t, "the token", "one", token.AccessToken)
	must.Equal(t, "it has no end for Google's library", true, token.Expiry.IsZero())

	// A new one takes the place of the old.
	m.pass(30 * time.Minute)
	m.reply(t, func(a *enrolmenttest.API) { a.Reply.AccessToken, a.Reply.TokenExpiresAt = "two", m.wall.Add(time.Hour) })
	must.Equal(t, "token", "two", must.Get(m.session.Token())(t).AccessToken)

	// While the API is unavailable the gateway publishes for as long as the token lives.
	m.reply(t, func(a *enrolmenttest.API) { a.Away = true })
	m.pass(59 * time.Minute)
	m.report(t)
	must.Do(t, m.session.Ready()) // the API is away, the token lives
	must.Hold(t, m.session.Problem(t.Context()) != nil, "that the API is away is not told")
	m.pass(time.Minute)
	must.Equal(t, "after the token's end publishing is blocked by", "token", kind(m.session.Ready()))
	m.reply(t, func(a *enrolmenttest.API) { a.Away, a.Reply.TokenExpiresAt = false, m.wall.Add(time.Hour) })
	must.Do(t, errors.Join(m.session.Ready(), m.session.Problem(t.Context()))) // the API has come back

	// A clone is told, a revocation ends publishing.
	m.reply(t, func(a *enrolmenttest.API) { a.Reply.Clone = true })
	err := m.session.Problem(t.Context())
	must.Hold(t, errors.Is(err, enrolment.ErrClone) && m.session.Ready() == nil, "a clone is told as %v", err)
	m.reply(t, func(a *enrolmenttest.API) { a.Reply.Clone, a.Reply.Revoked = false, true })
	if err := m.session.Problem(t.Context()); !errors.Is(err, enrolment.ErrRevoked) || kind(m.session.Ready()) != "revoked" {
		t.Errorf("a revocation is told as %v", err)
	}
	must.Hold(t, must.Err(m.session.Token()) != nil, "a revoked gateway uses its token")
	m.reply(t, func(a *enrolmenttest.API) { a.Reply.Revoked, a.Reply.Topic = false, "other" })
	must.Equal(t, "target", enrolment.Target{ProjectID: "site", Topic: "other"}, m.session.Target())

	// A reply to another status, or a captured one, is none.
	m.pass(time.Minute)
	m.reply(t, func(a *enrolmenttest.API) { a.Spoil = func(r *wire.StatusReply) { r.Nonce, r.Revoked = "old", true } })
	must.Hold(t, m.session.Ready() == nil && m.session.Problem(t.Context()) != nil, "the reply to another status is taken")
}

// TestPairKey shows contract 10.14: the key of the customer's gateways is the newest
// status reply's, is kept for a start while the API is unavailable, and ends with the enrolment.
func TestPairKey(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	again := func() *enrolment.Session {
		id := must.Get(enrolment.Load(m.folder))(t)
		return enrolment.NewSession(id, m.clock, m.clock.Now, "v1", true, logging.Discard())
	}
	if key := m.session.PairKey(); len(key) < 16 || bytes.Equal(key, again().PairKey()) {
		t.Errorf("without the API's the key is %q, and another session's too", key)
	}
	path := filepath.Join(m.folder, "pair.json")
	for _, want := range []string{"of the customer's gateways", "of them after a revocation"} {
		m.reply(t, func(a *enrolmenttest.API) { a.Reply.PairKey = []byte(want) })
		m.reply(t, func(a *enrolmenttest.API) { a.Away = true })
		m.api.Set(func(a *enrolmenttest.API) { a.Away = false })
		m.reply(t, func(a *enrolmenttest.API) { a.Reply.PairKey = nil })         // of an older API
		m.reply(t, func(a *enrolmenttest.API) { a.Reply.PairKey = []byte("x") }) // which anybody could guess
		for _, session := range []*enrolment.Session{m.session, again()} {
			if got := string(session.PairKey()); got != want || session.Revoked() {
				t.Errorf("the key is %q, want %q; revoked: %v", got, want, session.Revoked())
			}
		}
		nobodyElses(t, path)
	}
	for _, content := range []string{`{"gateway_id":"gw-other","pair_key":"b2YgYW5vdGhlciBlbnJvbG1lbnQ="}`, `{"gateway_id":"gw-cellar1","pair_key":""}`, "no json"} {
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		must.Hold(t, !bytes.Equal(again().PairKey(), again().PairKey()), "%s gives a key", content)
	}
	for range 2 {
		m.reply(t, func(a *enrolmenttest.API) { a.Reply.Revoked = true })
		if key := m.session.PairKey(); string(key) == "of them after a revocation" || len(key) < 16 || !m.session.Revoked() {
			t.Errorf("revoked it has the key %q", key)
		}
		kept := string(must.Get(os.ReadFile(path))(t))
		must.Hold(t, !strings.Contains(kept, "pair_key"), "revoked it keeps a key: %s", kept)
		// It takes no readings, nor the name, when it starts again while the API is unavailable.
		if s := again(); !s.Revoked() || kind(s.Ready()) != "revoked" || !errors.Is(s.Problem(t.Context()), enrolment.ErrRevoked) {
			t.Errorf("started again it is blocked by %v", s.Ready())
		}
	}
}

// TestNewCodeAfterARevocation has a revoked gateway enrolled with a new code: it has another key, and
// takes readings. The same code again goes on with the identity that it gave.
func TestNewCodeAfterARevocation(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.reply(t, func(a *enrolmenttest.API) { a.Reply.Revoked = true })
	old := m.api.Key()
	var key ed25519.PublicKey
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in wire.EnrolRequest
		must.Fail(t, "the request", json.NewDecoder(r.Body).Decode(&in), nil) // no FailNow beside the test
		key = in.PublicKey
		must.Fail(t, "the reply", json.NewEncoder(w).Encode(wire.EnrolReply{GatewayID: "gw-cellar2", Confirmed: in.Confirm}), nil)
	}))
	t.Cleanup(api.Close)
	var first ed25519.PublicKey
	for _, former := range []string{enrolmenttest.ID, ""} {
		ended := ""
		must.Get(enrolment.Enrol(t.Context(), m.folder, "KLMNO-PQRST", api.URL, func(o enrolment.Offer) bool {
			if o.Former != nil {
				ended = o.Former.GatewayID
			}
			return true
		}))(t)
		must.Equal(t, "the enrolment that ends", former, ended)
		id := must.Get(enrolment.Load(m.folder))(t)
		must.Equal(t, "the gateway", "gw-cellar2", id.GatewayID)
		must.Equal(t, "revoked", false, enrolment.NewSession(id, m.clock, m.clock.Now, "v1", true, logging.Discard()).Revoked())
		must.Equal(t, "it has the revoked key", false, key.Equal(old))
		must.Equal(t, "it has a third key", false, first != nil && !key.Equal(first))
		first = key
	}
}

// TestSystemClockIsOff shows contract 8.20.
func TestSystemClockIsOff(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"slow": -24 * time.Hour, "fast": 24 * time.Hour} {
		m := newMachine(t)
		truth := m.wall
		m.wall = m.wall.Add(off)
		m.reply(t, func(a *enrolmenttest.API) {
			a.Time = func() time.Time { return truth }
			a.Reply.AccessToken, a.Reply.TokenExpiresAt = "one", truth.Add(time.Hour)
		})
		if err := m.session.Ready(); kind(err) != "clock" || !strings.Contains(err.Error(), name+" by 24h0m0s") {
			t.Errorf("%s: publishing is blocked by %v", name, err)
		}
		if m.session.ClockProblem(t.Context()) == nil {
			t.Error(name + ": the clock is not told")
		}
		m.report(t) // by the corrected clock: it gets a token
		m.wall = truth.Add(4 * time.Minute)
		must.Do(t, errors.Join(m.session.Ready(), m.session.ClockProblem(t.Context()))) // the clock is set
		must.Equal(t, name+": reported offset in ms", -off.Milliseconds(), m.api.Statuses()[1].ClockOffsetMS)
	}
}

// TestRun holds that a gateway with a wrong clock asks a second time at once.
func TestRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	truth := m.wall.Add(time.Hour)
	m.api.Set(func(a *enrolmenttest.API) {
		a.Time = func() time.Time { return truth }
		a.Reply.AccessToken, a.Reply.TokenExpiresAt = "one", truth.Add(time.Hour)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- m.session.Run(ctx, func() enrolment.Report { return enrolment.Report{} }) }()
	<-m.session.Tried()
	must.Eventually(t, "a second status", func() bool { return len(m.api.Statuses()) >= 2 })
	cancel()
	must.Do(t, <-ended)
	if got := m.api.Statuses(); len(got) != 2 || got[1].ClockOffsetMS != time.Hour.Milliseconds() || got[0].BootID != got[1].BootID {
		t.Errorf("reported %+v", got)
	}
}
