package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
)

const (
	testKey  = "the first key of the tests and long enough"
	otherKey = "another key of the tests and long enough"
)

func fixedClock() func() time.Time {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	return func() time.Time { return now }
}

func testTokens(t *testing.T, secret string, clock func() time.Time) *Tokens {
	t.Helper()
	return must.Get(NewTokens(secret, clock))(t)
}

func signed(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	return must.Get(jwt.NewWithClaims(method, claims).SignedString(key))(t)
}

// TestTokenIsRefused shows contract 2.7.
func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	clock := fixedClock()
	now := clock()
	made := testTokens(t, testKey, clock)
	good := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{"sub": "7", "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
		if change != nil {
			change(c)
		}
		return c
	}
	critical := func(names any) string {
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, good(nil))
		token.Header["crit"], token.Header["b64"] = names, true
		return must.Get(token.SignedString([]byte(testKey)))(t)
	}
	rsaKey := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	hs := jwt.SigningMethodHS256
	key := []byte(testKey)
	valid := signed(t, hs, key, good(nil))
	must.Get(made.verify(valid))(t) // from which the others are made
	_, rest, _ := strings.Cut(valid, ".")
	withHeader := func(header string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + rest
	}
	for name, text := range map[string]string{
		"empty":                         "",
		"no token at all":               "Bearer",
		"two parts":                     strings.Join(strings.Split(valid, ".")[:2], "."),
		"algorithm none":                signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good(nil)),
		"header says none":              withHeader(`{"alg":"none","typ":"JWT"}`),
		"header says None":              withHeader(`{"alg":"None","typ":"JWT"}`),
		"algorithm HS384":               signed(t, jwt.SigningMethodHS384, key, good(nil)),
		"algorithm HS512":               signed(t, jwt.SigningMethodHS512, key, good(nil)),
		"algorithm RS256":               signed(t, jwt.SigningMethodRS256, rsaKey, good(nil)),
		"another key":                   signed(t, hs, []byte(otherKey), good(nil)),
		"signature cut":                 valid[:len(valid)-2],
		"signature missing":             valid[:strings.LastIndex(valid, ".")+1],
		"payload changed":               strings.Replace(valid, ".", ".e30", 1),
		"expired":                       signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = now.Add(-time.Second).Unix() })),
		"expires this instant":          signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = now.Unix() })),
		"not valid yet":                 signed(t, hs, key, good(func(c jwt.MapClaims) { c["nbf"] = now.Add(time.Minute).Unix() })),
		"no subject":                    signed(t, hs, key, good(func(c jwt.MapClaims) { delete(c, "sub") })),
		"no expiry":                     signed(t, hs, key, good(func(c jwt.MapClaims) { delete(c, "exp") })),
		"null expiry":                   signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = nil })),
		"expiry is text":                signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = "2099-01-01" })),
		"subject is a number":           signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = 7 })),
		"subject is a name":             signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "admin" })),
		"an unknown critical extension": critical([]string{"https://example.com/unknown"}),
		"a registered extension":        critical([]string{"b64"}),
		"no critical extension named":   critical([]string{}),
		"crit is null":                  critical(nil),
		"subject is beyond the integer": signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "99999999999999999999" })),
	} {
		if s, err := made.verify(text); err == nil {
			t.Errorf("%s: accepted, as customer %d", name, s.customerID)
		}
	}
}

func TestTokenIsAccepted(t *testing.T) {
	t.Parallel()
	clock := fixedClock()
	first := testTokens(t, testKey, clock)
	rotated := testTokens(t, otherKey+","+testKey, clock)
	issue := func(from *Tokens, generation int64) string {
		return must.Get(from.Issue(accounts.Person{ID: 3, CustomerID: 7, Generation: generation}))(t)
	}
	for name, test := range map[string]struct {
		reader     *Tokens
		token      string
		generation int64
	}{
		"our own":                 {first, issue(first, 1), 1},
		"before the rotation":     {rotated, issue(first, 2), 2},
		"after the rotation":      {rotated, issue(rotated, 3), 3},
		"without a generation":    {first, signed(t, jwt.SigningMethodHS256, []byte(testKey), jwt.MapClaims{"sub": "7", "person": 3, "exp": clock().Unix() + 60}), 0}, // which nobody has
		"an instance ahead of us": {testTokens(t, testKey, func() time.Time { return clock().Add(-time.Minute) }), issue(first, 1), 1},
	} {
		got, err := test.reader.verify(test.token)
		if want := (session{7, 3, test.generation}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := first.verify(issue(rotated, 1)); err == nil {
		t.Error("a token of a key that is not listed is accepted")
	}
}

// TestTokenLifetime pins the specification's half hour.
func TestTokenLifetime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	made := testTokens(t, testKey, func() time.Time { return now })
	text := must.Get(made.Issue(accounts.Person{ID: 4, CustomerID: 7, Generation: 3}))(t)
	payload := must.Get(base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1]))(t)
	want := fmt.Sprintf(`{"sub":"7","exp":%d,"iat":%d,"person":4,"generation":3}`, now.Unix()+1800, now.Unix())
	must.Equal(t, "claims", want, string(payload))
	for _, step := range []struct {
		after time.Duration
		valid bool
	}{{0, true}, {tokenLifetime - 1, true}, {tokenLifetime, false}} {
		later := testTokens(t, testKey, func() time.Time { return now.Add(step.after) })
		_, err := later.verify(text)
		must.Equal(t, fmt.Sprint("valid after ", step.after), step.valid, err == nil)
	}
}

// TestSecretKey shows contract 2.7.
func TestSecretKey(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "short", strings.Repeat("k", 31), testKey + ",", testKey + ",short"} {
		if _, err := NewTokens(secret, fixedClock()); err == nil {
			t.Errorf("%q is accepted", secret)
		} else if len(secret) > 0 && strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	for _, secret := range []string{strings.Repeat("k", 32), testKey + "," + otherKey, testKey + ", " + otherKey} {
		must.Get(NewTokens(secret, fixedClock()))(t)
	}
}

func FuzzVerifyToken(f *testing.F) {
	made := must.Get(NewTokens(testKey, fixedClock()))(f)
	good := must.Get(made.Issue(accounts.Person{ID: 3, CustomerID: 7, Generation: 1}))(f)
	f.Add(good)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := made.verify(text)
		if err == nil && text != good {
			t.Errorf("%q speaks for %d", text, s.customerID)
		}
	})
}
