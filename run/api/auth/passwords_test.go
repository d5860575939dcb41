package auth

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/shared/must"
)

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
