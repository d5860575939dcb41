package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
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
	made, err := NewTokens(secret, clock)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func signed(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
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
		text, err := token.SignedString([]byte(testKey))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	hs := jwt.SigningMethodHS256
	key := []byte(testKey)
	valid := signed(t, hs, key, good(nil))
	if _, err := made.verify(valid); err != nil {
		t.Fatalf("the token that the others are made from is refused itself: %v", err)
	}
	head, rest, _ := strings.Cut(valid, ".")
	_ = head
	withHeader := func(header string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + rest
	}
	tests := map[string]string{
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
		"expires this instant":          signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = json.Number("1772366400.123456") })),
		"issued in the future":          signed(t, hs, key, good(func(c jwt.MapClaims) { c["iat"] = now.Add(time.Minute).Unix() })),
		"not valid yet":                 signed(t, hs, key, good(func(c jwt.MapClaims) { c["nbf"] = now.Add(time.Minute).Unix() })),
		"no subject":                    signed(t, hs, key, good(func(c jwt.MapClaims) { delete(c, "sub") })),
		"no issue":                      signed(t, hs, key, good(func(c jwt.MapClaims) { delete(c, "iat") })),
		"no expiry":                     signed(t, hs, key, good(func(c jwt.MapClaims) { delete(c, "exp") })),
		"null expiry":                   signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = nil })),
		"expiry is text":                signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = "2099-01-01" })),
		"expiry out of range":           signed(t, hs, key, good(func(c jwt.MapClaims) { c["exp"] = 1e300 })),
		"subject is a number":           signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = 7 })),
		"subject is a name":             signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "admin" })),
		"subject is zero":               signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "0" })),
		"subject is negative":           signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "-7" })),
		"subject is written otherwise":  signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "+7" })),
		"an unknown critical extension": critical([]string{"https://example.com/unknown"}),
		"a registered extension":        critical([]string{"b64"}),
		"no critical extension named":   critical([]string{}),
		"crit is null":                  critical(nil),
		"subject is beyond the integer": signed(t, hs, key, good(func(c jwt.MapClaims) { c["sub"] = "99999999999999999999" })),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if who, err := made.verify(text); err == nil {
				t.Errorf("accepted, as customer %d", who.customerID)
			}
		})
	}
}

func TestTokenIsAccepted(t *testing.T) {
	t.Parallel()
	clock := fixedClock()
	now := clock()
	first := testTokens(t, testKey, clock)
	rotated := testTokens(t, otherKey+","+testKey, clock)
	issue := func(from *Tokens, validAfter time.Time) string {
		text, err := from.Issue(7, validAfter)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	later := now.Add(3 * time.Millisecond)
	tests := map[string]struct {
		reader *Tokens
		token  string
		issued time.Time
	}{
		"our own":                        {first, issue(first, time.Time{}), now},
		"of before the rotation":         {rotated, issue(first, time.Time{}), now},
		"of after the rotation":          {rotated, issue(rotated, time.Time{}), now},
		"issued at the password change":  {first, issue(first, now), now},
		"whose change has a clock ahead": {first, issue(first, later), later},
		"minted elsewhere, whole seconds": {
			first,
			signed(t, jwt.SigningMethodHS256, []byte(testKey), jwt.MapClaims{"sub": "7", "iat": now.Unix(), "exp": now.Unix() + 60}),
			now.Truncate(time.Second),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who, err := test.reader.verify(test.token)
			if err != nil {
				t.Fatal(err)
			}
			if who.customerID != 7 || !who.issuedAt.Equal(test.issued) {
				t.Errorf("customer %d, issued %v, want 7, %v", who.customerID, who.issuedAt, test.issued)
			}
		})
	}
	if _, err := first.verify(issue(rotated, time.Time{})); err == nil {
		t.Error("a token of a key that is not listed is accepted")
	}
}

// TestTokenLifetime pins the specification's half hour.
func TestTokenLifetime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	made := testTokens(t, testKey, func() time.Time { return now })
	text, err := made.Issue(7, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"sub":"7","iat":%d,"exp":%d}`, now.Unix(), now.Unix()+1800)
	if string(payload) != want {
		t.Errorf("claims %s, want %s", payload, want)
	}
	// Its times count for each request, also when its signature is known.
	for _, step := range []struct {
		after time.Duration
		valid bool
	}{{-clockSkew - 1, false}, {0, true}, {tokenLifetime - 1, true}, {tokenLifetime, false}, {0, true}, {-clockSkew - 1, false}} {
		made.clock = func() time.Time { return now.Add(step.after) }
		if _, err := made.verify(text); (err == nil) != step.valid {
			t.Errorf("%s after its issue: %v", step.after, err)
		}
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
		if _, err := NewTokens(secret, fixedClock()); err != nil {
			t.Errorf("%q is refused: %v", secret, err)
		}
	}
}

func FuzzVerifyToken(f *testing.F) {
	made, err := NewTokens(testKey, fixedClock())
	if err != nil {
		f.Fatal(err)
	}
	good, err := made.Issue(7, time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		who, err := made.verify(text)
		if err == nil && text != good {
			t.Errorf("%q speaks for %d", text, who.customerID)
		}
	})
}

// BenchmarkVerifyToken is what the token adds to a request: to its first, and to those
// that follow.
func BenchmarkVerifyToken(b *testing.B) {
	made, err := NewTokens(testKey, time.Now)
	if err != nil {
		b.Fatal(err)
	}
	text, err := made.Issue(7, time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	for name, verify := range map[string]func(string) (identity, error){"first": made.read, "again": made.verify} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := verify(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
