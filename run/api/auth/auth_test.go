package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
)

// TestRevocationDuringALookup revokes what a query still finds: later requests are refused. Contract 2.7, 12.1.
func TestRevocationDuringALookup(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"token", "key"} {
		synctest.Test(t, func(t *testing.T) {
			tokens := testTokens(t, testKey, time.Now)
			stored, keys := newKeys()
			generation, queries := int64(1), 0
			persons := func(context.Context, []int64) (map[int64]accounts.Person, error) {
				queries++
				found := map[int64]accounts.Person{3: {ID: 3, CustomerID: 7, Role: "viewer", Generation: generation}} // a query finds what stands when it begins
				time.Sleep(time.Millisecond)
				return found, nil
			}
			a := NewAuthenticator(tokens, persons, keys, logging.Discard())
			credential := must.Get(tokens.Issue(accounts.Person{ID: 3, CustomerID: 7, Generation: 1}))(t)
			revoke := func() { generation++ }
			if name == "key" {
				credential = stored.add(1, nil)
				revoke = func() { stored.remove(credential) }
			}
			var requests sync.WaitGroup
			send := func(when string, want int) {
				requests.Go(func() {
					must.Equal(t, fmt.Sprintf("a request %s the revocation of a %s", when, name), want,
						answer(t.Context(), a, credential))
				})
			}
			send("before", http.StatusOK)
			synctest.Wait() // its query is in flight
			revoke()
			for range 3 {
				send("after", http.StatusUnauthorized)
			}
			requests.Wait()
			must.Equal(t, name+": queries", 2, queries+stored.queries)
		})
	}
}

// answer returns the status of a request with a token or key.
func answer(ctx context.Context, a *Authenticator, credential string) int {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer "+credential)
	recorder := httptest.NewRecorder()
	authenticate := a.Authenticate(rest.Operation{Keys: rest.ReadKeysInRooms, Role: rest.Viewer}) //nolint:contextcheck // of the request
	authenticate(humago.NewContext(&huma.Operation{}, request, recorder), func(huma.Context) {})  // 200
	return recorder.Code
}

// TestClientGoesDuringALookup logs no fault.
func TestClientGoesDuringALookup(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tokens := testTokens(t, testKey, time.Now)
	left, leave := context.WithCancel(t.Context())
	persons := func(context.Context, []int64) (map[int64]accounts.Person, error) {
		leave()
		return nil, context.Canceled
	}
	a := NewAuthenticator(tokens, persons, nil, logging.New(&log, slog.LevelInfo, ""))
	credential := must.Get(tokens.Issue(accounts.Person{ID: 3, CustomerID: 7}))(t)
	must.Equal(t, "status", rest.StatusClientGone, answer(left, a, credential))
	must.Equal(t, "log", "", log.String())
}

// fakeKeys counts queries. Each takes a millisecond, and finds the keys that stand when it begins.
type fakeKeys struct {
	mutex   sync.Mutex
	keys    map[accounts.KeyHash]accounts.APIKey
	queries int
	noted   []int64
	err     error
}

func newKeys() (*fakeKeys, *Keys) {
	stored := &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
	return stored, NewKeys(stored, time.Now, logging.Discard())
}

func (f *fakeKeys) APIKeysByHash(_ context.Context, hashes []accounts.KeyHash) (map[accounts.KeyHash]accounts.APIKey, error) {
	defer time.Sleep(time.Millisecond)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.queries++
	found := map[accounts.KeyHash]accounts.APIKey{}
	for _, hash := range hashes {
		if key, ok := f.keys[hash]; ok {
			found[hash] = key
		}
	}
	return found, f.err
}

func (f *fakeKeys) RecordAPIKeyUses(_ context.Context, ids []int64) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.noted = append(f.noted, ids...)
	for hash, key := range f.keys {
		if slices.Contains(ids, key.ID) {
			key.LastUsedAt = new(time.Now())
			f.keys[hash] = key
		}
	}
	return f.err
}

// add stores a new key.
func (f *fakeKeys) add(id int64, expires *time.Time) string {
	text, _, hash := NewKey()
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.keys[hash] = accounts.APIKey{ID: id, CustomerID: 7, Scope: rest.ScopeRead, ExpiresAt: expires}
	return text
}

func (f *fakeKeys) remove(text string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.keys, sha256.Sum256([]byte(text)))
}

// TestKeyForm holds keys to the form that SECURITY.md gives scanners; a misspelt one needs no query. Contract 12.1.
func TestKeyForm(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/SECURITY.md"))(t)
	const form = `cold_[0-9A-Za-z]{49}`
	must.Contain(t, "SECURITY.md", string(page), "`"+form+"`")
	seen := map[string]bool{}
	for range 100 {
		text, shown, hash := NewKey()
		if !regexp.MustCompile("^"+form+"$").MatchString(text) || !strings.HasPrefix(text, shown) || len(shown) != 9 || hash != sha256.Sum256([]byte(text)) {
			t.Fatalf("%s, %s, %x", text, shown, hash)
		}
		if !wellFormed(text) || seen[text] {
			t.Errorf("%s is not well-formed, or not new", text)
		}
		seen[text] = true
	}
	text, _, _ := NewKey()
	for i := range text {
		other := byte('x')
		if text[i] == other {
			other = 'y'
		}
		must.Equal(t, "another is well-formed", false, wellFormed(text[:i]+string(other)+text[i+1:]))
	}
	for _, wrong := range []string{"", keyPrefix, text[:53], text + "0", "cold_" + strings.Repeat("é", 24) + "x", strings.Repeat("0", 54)} {
		must.Equal(t, wrong+" is well-formed", false, wellFormed(wrong))
	}
}

// TestKeyEnds finds a key until it is revoked or expires. Contract 12.1.
func TestKeyEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, k := newKeys()
		find := func(text string, want error) {
			t.Helper()
			if key, err := k.find(t.Context(), text); !errors.Is(err, want) || err == nil && key.CustomerID != 7 {
				t.Errorf("%+v, %v, want %v", key, err, want)
			}
		}
		text := stored.add(1, nil)
		find(text, nil)
		stored.remove(text)
		find(text, errToken)
		brief := stored.add(2, new(time.Now().Add(2*time.Second)))
		find(brief, nil)
		time.Sleep(2 * time.Second)
		find(brief, errToken)
		stored.queries = 0
		find("cold_"+strings.Repeat("0", 49), errToken) // its sum is wrong
		must.Equal(t, "a query for what is no key", 0, stored.queries)
		stored.err = errors.New("the database is away")
		find(stored.add(3, nil), stored.err)
	})
}

// TestKeyGuesses has somebody try many keys: they are looked up together. Contract 12.1.
func TestKeyGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, k := newKeys()
		const guesses = 3 * maxLookups
		var all sync.WaitGroup
		for range guesses {
			all.Go(func() {
				guess, _, _ := NewKey()
				_, err := k.find(t.Context(), guess)
				must.Fail(t, "a guess", err, errToken)
			})
		}
		all.Wait()
		most := guesses/maxLookups + 2
		must.Equal(t, fmt.Sprintf("%d queries for %d guesses, %d at most", stored.queries, guesses, most), true,
			stored.queries <= most)
	})
}

// TestKeyUse notes a use once a minute, while no request waits for it. Contract 12.1.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, k := newKeys()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go k.Run(ctx)
		text := stored.add(1, nil)
		for range 150 {
			must.Get(k.find(ctx, text))(t)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		must.Equal(t, "noted in 150 s", "[1 1 1]", fmt.Sprint(stored.noted))
	})
	// With nobody who notes, requests go on.
	stored, k := newKeys()
	for id := range int64(maxLookups + 10) {
		must.Get(k.find(t.Context(), stored.add(id, nil)))(t)
	}
}

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
	_, err := first.verify(issue(rotated, 1))
	must.Equal(t, "a token of a key that is not listed is accepted", false, err == nil)
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

// TestClientAddress takes the header as Google documents it and as it was seen, see clients, and what people make up.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	const balancer = "34.117.9.1"
	none, cloud, behind := []string(nil), []string{"peer", balancer}, []string{"127.0.0.1", "10.0.0.0/8", "::1"}
	for name, test := range map[string]struct {
		trusted      []string
		peer         string
		forwardedFor []string
		want         string
	}{
		"nobody in between":                  {none, "203.0.113.7:4711", nil, "203.0.113.7/32"},
		"nobody in between, header made up":  {none, "203.0.113.7:4711", []string{"198.51.100.1"}, "203.0.113.7/32"},
		"IPv6 by its network":                {none, "[2001:db8:1:2:3:4:5:6]:4711", nil, "2001:db8:1:2::/64"},
		"IPv6 of a link":                     {none, "[fe80::1%eth0]:4711", nil, "fe80::/64"},
		"IPv4 within IPv6":                   {none, "[::ffff:203.0.113.7]:4711", nil, "203.0.113.7/32"},
		"run.app":                            {cloud, "169.254.169.126:80", []string{"203.0.113.7"}, "203.0.113.7/32"},
		"run.app, header made up":            {cloud, "169.254.169.126:80", []string{"198.51.100.1,203.0.113.7"}, "203.0.113.7/32"},
		"run.app, balancer made up":          {cloud, "169.254.169.126:80", []string{"198.51.100.1," + balancer + ",203.0.113.7"}, "203.0.113.7/32"},
		"load balancer":                      {cloud, "169.254.169.126:80", []string{"203.0.113.7," + balancer}, "203.0.113.7/32"},
		"load balancer, header made up":      {cloud, "169.254.169.126:80", []string{"198.51.100.1,203.0.113.7, " + balancer}, "203.0.113.7/32"},
		"load balancer, as seen":             {cloud, "169.254.169.126:80", []string{"203.0.113.7, " + balancer + ",203.0.113.7"}, "203.0.113.7/32"},
		"load balancer, in several headers":  {cloud, "169.254.169.126:80", []string{"198.51.100.1", "203.0.113.7", balancer}, "203.0.113.7/32"},
		"load balancer, IPv6 client":         {cloud, "169.254.169.126:80", []string{"2001:db8::7," + balancer}, "2001:db8::/64"},
		"load balancer, nonsense made up":    {cloud, "169.254.169.126:80", []string{"' OR 1=1,203.0.113.7," + balancer}, "203.0.113.7/32"},
		"no header":                          {cloud, "169.254.169.126:80", nil, "169.254.169.126/32"},
		"nothing but nonsense":               {cloud, "169.254.169.126:80", []string{"unknown"}, "169.254.169.126/32"},
		"nothing but proxies":                {cloud, "169.254.169.126:80", []string{balancer}, balancer + "/32"},
		"an own proxy":                       {behind, "127.0.0.1:4711", []string{"198.51.100.1, 203.0.113.7"}, "203.0.113.7/32"},
		"two own proxies":                    {behind, "127.0.0.1:4711", []string{"198.51.100.1, 203.0.113.7, 10.1.2.3"}, "203.0.113.7/32"},
		"past the own proxy, header made up": {behind, "192.0.2.1:4711", []string{"203.0.113.7"}, "192.0.2.1/32"},
		"a header as long as they may be":    {cloud, "169.254.169.126:80", []string{strings.Repeat("198.51.100.1,", 1000) + "203.0.113.7"}, "203.0.113.7/32"},
	} {
		c := must.Get(NewClients(test.trusted))(t)
		request := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		request.RemoteAddr = test.peer
		request.Header["X-Forwarded-For"] = test.forwardedFor
		must.Equal(t, name, test.want, c.of(request).String())
	}
	for _, wrong := range []string{"", "somebody", "10.0.0.0/33", "10.0.0", "http://10.0.0.1"} {
		if _, err := NewClients([]string{wrong}); err == nil || !strings.HasPrefix(err.Error(), "TRUSTED_PROXIES") {
			t.Errorf("%q: %v, want a line about TRUSTED_PROXIES", wrong, err)
		}
	}
}

// TestPasswordsBeyondBcrypt shows that a longer password is not taken for the stored one that begins it. Contract 2.9.
func TestPasswordsBeyondBcrypt(t *testing.T) {
	t.Parallel()
	p := NewPasswords(1, 4)
	longest := "Aa0" + strings.Repeat("x", 69)
	stored := must.Get(p.Hash(t.Context(), "", longest))(t)
	for plain, want := range map[string]bool{longest: true, longest + "y": false, longest[:71]: false, "": false} {
		must.Equal(t, plain+" matches", want, must.Get(p.Matches(stored, plain))(t))
	}
	// Nobody's password is compared at the full cost, and never matches.
	must.Equal(t, "the decoy costs", 4, must.Get(bcrypt.Cost(p.dummyHash))(t))
	must.Equal(t, "nobody's password matches", false, must.Get(p.Matches("", longest))(t))
}

// TestLaneFullOfCookies fills the lane of known devices: who has a cookie of another address gets a slot. Contract 2.9.
func TestLaneFullOfCookies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPasswords(1, 4)
		done := must.Get(p.Acquire(t.Context(), ""))(t)
		for i := range maxKnown {
			go func() {
				if end, err := p.Acquire(t.Context(), fmt.Sprintf("%d@example.com", i)); err == nil {
					time.Sleep(time.Second / 4)
					end()
				}
			}()
		}
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			done()
		}()
		end := must.Get(p.Acquire(t.Context(), "victim@example.com"))(t)
		end()
		time.Sleep(MaxPasswordWait)
	})
}
