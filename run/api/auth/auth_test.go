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
	"net/netip"
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

// fakeAccounts finds persons by a function.
type fakeAccounts struct {
	*fakeKeys

	persons func(context.Context, []int64) (map[int64]accounts.Person, error)
}

func (f *fakeAccounts) PersonsByID(ctx context.Context, ids []int64) (map[int64]accounts.Person, error) {
	return f.persons(ctx, ids)
}

// TestRevocationDuringALookup revokes a token and a key while the query of a request before
// is in flight, which still finds them. Requests that begin after that are refused, also
// where they wait for a query together. Contract 2.7 and 12.1.
func TestRevocationDuringALookup(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"token", "key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tokens := testTokens(t, testKey, time.Now)
				keys := &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
				generation, queries := int64(1), 0
				persons := func(context.Context, []int64) (map[int64]accounts.Person, error) {
					queries++
					found := map[int64]accounts.Person{3: {ID: 3, CustomerID: 7, Role: "viewer", Generation: generation}} // a query finds what stands when it begins
					time.Sleep(time.Millisecond)
					return found, nil
				}
				a := NewAuthenticator(&fakeAccounts{keys, persons}, tokens, time.Now, logging.Discard())
				credential := must.Get(tokens.Issue(accounts.Person{ID: 3, CustomerID: 7, Generation: 1}))(t)
				revoke := func() { generation++ }
				if name == "key" {
					credential = keys.add(1, nil)
					revoke = func() { keys.remove(credential) }
				}
				var requests sync.WaitGroup
				send := func(when string, want int) {
					requests.Go(func() {
						must.Equal(t, fmt.Sprintf("a request %s the revocation", when), want, answer(t, a, credential))
					})
				}
				send("before", http.StatusOK)
				synctest.Wait() // its query is in flight
				revoke()
				for range 3 {
					send("after", http.StatusUnauthorized)
				}
				requests.Wait()
				must.Equal(t, "queries", 2, queries+keys.queries)
			})
		})
	}
}

// answer returns the status of a request with a token or key.
func answer(t *testing.T, a *Authenticator, credential string) int {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer "+credential)
	recorder := httptest.NewRecorder()
	next := func(huma.Context) {} // 200
	a.Authenticate(rest.Operation{Keys: rest.ReadKeysInRooms, Role: rest.Viewer})(humago.NewContext(&huma.Operation{}, request, recorder), next)
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
	a := NewAuthenticator(&fakeAccounts{persons: persons}, tokens, time.Now, logging.New(&log, slog.LevelInfo, ""))
	request := httptest.NewRequestWithContext(left, http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer "+must.Get(tokens.Issue(accounts.Person{ID: 3, CustomerID: 7}))(t))
	recorder := httptest.NewRecorder()
	a.Authenticate(rest.Operation{Role: rest.Viewer})(humago.NewContext(&huma.Operation{}, request, recorder), nil)
	must.Equal(t, "status", rest.StatusClientGone, recorder.Code)
	must.Equal(t, "log", "", log.String())
}

// TestPanicOfALookup is the error of its request, logged with its stack, and not the end of the process.
func TestPanicOfALookup(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tokens := testTokens(t, testKey, time.Now)
	persons := func(context.Context, []int64) (map[int64]accounts.Person, error) { panic("nil map") }
	a := NewAuthenticator(&fakeAccounts{persons: persons}, tokens, time.Now, logging.New(&log, slog.LevelInfo, ""))
	must.Equal(t, "status", http.StatusInternalServerError, answer(t, a, must.Get(tokens.Issue(accounts.Person{ID: 3, CustomerID: 7}))(t)))
	must.Hold(t, strings.Contains(log.String(), "panic: nil map") && strings.Contains(log.String(), "auth_test.go"), "log %s", &log)
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
		got, err := p.Matches(stored, plain)
		must.Hold(t, err == nil && got == want, "%d bytes: %v, %v, want %v", len(plain), got, err, want)
	}
	// Nobody's password is compared at the full cost, and never matches.
	must.Equal(t, "the decoy costs", 4, must.Get(bcrypt.Cost(p.dummyHash))(t))
	got, err := p.Matches("", longest)
	must.Hold(t, !got && err == nil, "nobody's password matches: %v, %v", got, err)
}

// TestLateCookieEvictsNobody has the time of a login with a cookie end behind a full queue: nobody loses the place that
// it could not use any more.
func TestLateCookieEvictsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPasswords(1, 4)
		done := must.Get(p.Acquire(t.Context(), ""))(t)
		for range MaxWaiting {
			go func() {
				if end, err := p.Acquire(t.Context(), ""); err != nil {
					t.Error(err)
				} else {
					end()
				}
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), clientKey{}, netip.MustParsePrefix("192.0.2.7/32")), MaxPasswordWait/2)
		defer cancel()
		must.Fail(t, "in time", must.Err(p.Acquire(ctx, "late@example.com")), context.DeadlineExceeded)
		done()
		synctest.Wait()
	})
}

// TestLaneFullOfCookies fills the lane of known devices by as many e-mail addresses as it holds: who
// has a cookie of another gets a slot as those without one do. Contract 2.9.
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
	if c, err := made.verify(valid); err != nil || !c.of(accounts.Person{CustomerID: 7}) {
		t.Fatalf("the token that the others are made from is refused itself: %+v, %v", c, err)
	}
	_, rest, _ := strings.Cut(valid, ".")
	withHeader := func(header string) string { return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + rest }
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
		c, err := made.verify(text)
		must.Hold(t, err != nil || !c.of(accounts.Person{CustomerID: 7}), "%s: accepted", name)
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
		must.Hold(t, err == nil && got.of(accounts.Person{ID: 3, CustomerID: 7, Generation: test.generation}),
			"%s: %+v, %v", name, got, err)
	}
	must.Hold(t, must.Err(first.verify(issue(rotated, 1))) != nil, "a token of a key that is not listed is accepted")
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
		_, err := NewTokens(secret, fixedClock())
		must.Hold(t, err == nil, "%q is refused: %v", secret, err)
	}
}

func FuzzVerifyToken(f *testing.F) {
	made := must.Get(NewTokens(testKey, fixedClock()))(f)
	good := must.Get(made.Issue(accounts.Person{ID: 3, CustomerID: 7, Generation: 1}))(f)
	f.Add(good)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := made.verify(text)
		must.Hold(t, err != nil || text == good, "%q speaks for %s", text, c.Subject)
	})
}

// fakeKeys counts queries. Each takes a millisecond, and finds the keys that stand when it begins.
type fakeKeys struct {
	mutex   sync.Mutex
	keys    map[accounts.KeyHash]accounts.APIKey
	queries int
	err     error // of queries

	recorded []int64
	readOnly error // of records
}

func (f *fakeKeys) PersonsByID(context.Context, []int64) (map[int64]accounts.Person, error) {
	return map[int64]accounts.Person{}, nil
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
	f.recorded = append(f.recorded, ids...)
	for hash, key := range f.keys {
		if slices.Contains(ids, key.ID) {
			key.LastUsedAt = new(time.Now())
			f.keys[hash] = key
		}
	}
	return f.readOnly
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

// TestKeyForm holds keys to the regular expression that SECURITY.md gives to scanners, and to
// their check sum. Contract 12.1.
func TestKeyForm(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/SECURITY.md"))(t)
	const form = `cold_[0-9A-Za-z]{49}`
	must.Hold(t, strings.Contains(string(page), "`"+form+"`"), "SECURITY.md has no %s", form)
	seen := map[string]bool{}
	for range 100 {
		text, shown, hash := NewKey()
		if !regexp.MustCompile("^"+form+"$").MatchString(text) || !strings.HasPrefix(text, shown) || len(shown) != 9 || hash != sha256.Sum256([]byte(text)) {
			t.Fatalf("%s, %s, %x", text, shown, hash)
		}
		begin := len(text) - keySumDigits
		must.Hold(t, keySum(text[:begin]) == text[begin:] && !seen[text], "%s has another sum, or is not new", text)
		seen[text] = true
	}
}

// newFakeKeys are none yet. lookUp looks one up as a request with it does.
func newFakeKeys(t *testing.T) (keys *fakeKeys, lookUp func(text string) (caller, error)) {
	t.Helper()
	keys = &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
	a := NewAuthenticator(keys, testTokens(t, testKey, time.Now), time.Now, logging.Discard())
	return keys, func(text string) (caller, error) {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		request.Header.Set("Authorization", "Bearer "+text)
		return a.caller(humago.NewContext(&huma.Operation{}, request, nil))
	}
}

// TestKeyEnds finds a key until it is revoked or expires. Contract 12.1.
func TestKeyEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, lookUp := newFakeKeys(t)
		wants := func(text string, want error) {
			t.Helper()
			found, err := lookUp(text)
			must.Hold(t, errors.Is(err, want) && (err != nil || found.customerID == 7), "%+v, %v, want %v", found, err, want)
		}
		text := stored.add(1, nil)
		wants(text, nil)
		stored.remove(text)
		wants(text, errToken)
		brief := stored.add(2, new(time.Now().Add(2*time.Second)))
		wants(brief, nil)
		time.Sleep(2 * time.Second)
		wants(brief, errToken)
		wants("cold_", errToken)
		stored.err = errors.New("the database is away")
		wants(stored.add(3, nil), stored.err)
	})
}

// TestKeyGuesses has somebody try many keys: they are looked up together. Contract 12.1.
func TestKeyGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, lookUp := newFakeKeys(t)
		const guesses = 3 * maxLookups
		var all sync.WaitGroup
		for range guesses {
			all.Go(func() {
				guess, _, _ := NewKey()
				must.Fail(t, "a guess", must.Err(lookUp(guess)), errToken)
			})
		}
		all.Wait()
		most := guesses/maxLookups + 2
		must.Hold(t, stored.queries <= most, "%d queries for %d guesses, want %d at most", stored.queries, guesses, most)
	})
}

// TestKeyUse records a use once a minute, and lets requests on if it cannot. Contract 12.1.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, lookUp := newFakeKeys(t)
		text := stored.add(1, nil)
		expired := stored.add(2, new(time.Now()))
		for second := range 150 {
			if _, err := lookUp(text); err != nil {
				t.Fatal(second, err)
			}
			_, _ = lookUp(expired)
			time.Sleep(time.Second)
		}
		must.Equal(t, "recorded in 150 s", "[1 1 1]", fmt.Sprint(stored.recorded))
		stored.readOnly = errors.New("the database is read-only")
		time.Sleep(time.Minute)
		must.Get(lookUp(text))(t)
	})
}
