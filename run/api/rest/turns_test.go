package rest

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"coldaisle.dev/shared/must"
)

// TestTurnsGoFromAccountToAccount has one account ask for more turns than may wait: another gets the
// next one, and what finds no turn in time is told when to try again.
func TestTurnsGoFromAccountToAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		var served, refused []int64 // by account; one has the turn at a time
		var mutex sync.Mutex
		wait := func(account int64) {
			done, err := turns.Wait(WithAccount(t.Context(), account))
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				served = append(served, account)
				done()
				return
			}
			busy, ok := errors.AsType[*Error](err)
			if !ok || busy.Status != http.StatusServiceUnavailable || busy.GetHeaders().Get("Retry-After") != "10" {
				t.Errorf("refused with %v", err)
			}
			refused = append(refused, account)
		}
		end := must.Get(turns.Wait(WithAccount(t.Context(), 1)))(t)
		var requests sync.WaitGroup
		for range 2 * maxTurnsWaiting {
			requests.Go(func() { wait(1) })
		}
		synctest.Wait()
		requests.Go(func() { wait(2) })
		synctest.Wait()
		end()
		requests.Wait()
		if len(served) != maxTurnsWaiting || served[1] != 2 || len(refused) != maxTurnsWaiting+1 {
			t.Errorf("served %v, refused %v", served, refused)
		}
	})
}
