package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
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
