package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// signedToken is a token of a person's generation.
func signedToken(t *testing.T, subject string, person, generation int64) string {
	t.Helper()
	return must.Get(jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": subject, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "person": person, "generation": generation,
	}).SignedString([]byte(secretKey)))(t)
}

func (s *testAPI) generation(t *testing.T, of *testCustomer) int64 {
	t.Helper()
	return scalar[int64](t, s, `SELECT generation FROM persons WHERE id = $1`, of.person)
}

// TestRestoredBackupOpensNoAccount restores a backup of before an account: the next one gets its ids,
// and the token of the lost one is not valid for it.
func TestRestoredBackupOpensNoAccount(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	lost := s.customer(t)
	must.Get(s.pool.Exec(t.Context(), fmt.Sprintf(`DELETE FROM customers;
		ALTER TABLE customers ALTER id RESTART WITH %d; ALTER TABLE persons ALTER id RESTART WITH %d`, lost.id, lost.person)))(t)
	next := s.customer(t)
	must.Equal(t, "ids of the next account", []int64{lost.id, lost.person}, []int64{next.id, next.person})
	s.call(t, lost.token, http.MethodGet, "/api/v1/alerts/active", "").is(t, http.StatusUnauthorized)
}

// TestPasswordChangeRevokes shows that tokens issued before a password change stop at once and those of a login right
// after it work, in the same second. Contract 2.7.
func TestPasswordChangeRevokes(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	changer, other := s.customer(t), s.customer(t)
	works := func(what, token string, want bool) {
		t.Helper()
		got := s.call(t, token, http.MethodGet, "/api/v1/alerts/active", "").status
		must.Equal(t, what+" works", want, got == http.StatusOK)
	}
	minted := signedToken(t, decimal(changer.id), changer.person, s.generation(t, changer))
	works("a token while the password never changed", minted, true)
	for round := range 5 {
		old := changer.token
		works("a fresh token", old, true)
		changer.password = fmt.Sprintf("Passw0rd%d", round)
		s.call(t, old, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", changer.id), fmt.Sprintf(`{"password":%q}`, changer.password)).
			is(t, http.StatusOK).lacks(t, "assw")
		works("a token from before the change", old, false)
		changer.login(t)
	}
	works("a token minted before the change", minted, false)
	s.call(t, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":"Passw0rd"}`, changer.email)).is(t, 401)
	present := s.generation(t, other)
	works("a token of nobody", signedToken(t, decimal(other.id), 999999, present), false)
	works("a token of another account", signedToken(t, decimal(changer.id), other.person, present), false)
	works("a token without a person", signedToken(t, decimal(other.id), 0, present), false)
	works("another customer's token", other.token, true)
	// A change of anything else revokes nothing.
	s.call(t, changer.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", changer.id), `{"username":"renamed"}`).is(t, 200)
	works("a token after a new user name", changer.token, true)
}

// TestLoginTime compares the time of an unknown e-mail with that of a wrong
// password, at the cost of production: they differ by less than half. Contract 2.6.
func TestLoginTime(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	s, a := newTestCustomer(t, func(d *Config) { d.PasswordCost = 10 })
	login := func(email string) time.Duration {
		began := time.Now()
		s.call(t, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":"Wr0ngpass"}`, email)).is(t, 401)
		return time.Since(began)
	}
	// The least of many tries is what the computation takes; on a busy machine it
	// needs more tries to show. Two different computations never come near each other.
	wrong, unknown, ratio := time.Hour, time.Hour, 0.0
	for try := range 100 {
		wrong, unknown = min(wrong, login(a.email)), min(unknown, login("nobody@example.com"))
		ratio = float64(unknown) / float64(wrong)
		if try >= 2 && ratio > 0.5 && ratio < 2 {
			return
		}
	}
	t.Errorf("unknown e-mail %v, wrong password %v", unknown, wrong)
}
