package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
						must.Equal(t, fmt.Sprintf("a request %s the revocation", when), want, answer(t.Context(), a, credential))
					})
				}
				send("before", http.StatusOK)
				synctest.Wait() // its query is in flight
				revoke()
				for range 3 {
					send("after", http.StatusUnauthorized)
				}
				requests.Wait()
				must.Equal(t, "queries", 2, queries+stored.queries)
			})
		})
	}
}

// answer returns the status of a request with a token or key.
func answer(ctx context.Context, a *Authenticator, credential string) int {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
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
	a := NewAuthenticator(tokens, persons, nil, logging.New(&log, slog.LevelInfo, ""))
	credential := must.Get(tokens.Issue(accounts.Person{ID: 3, CustomerID: 7}))(t)
	must.Equal(t, "status", rest.StatusClientGone, answer(left, a, credential))
	must.Equal(t, "log", "", log.String())
}
