package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

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
