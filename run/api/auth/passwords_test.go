package auth

import (
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/shared/must"
)

// TestPasswordsBeyondBcrypt shows that a longer password is not taken for the
// stored one that begins it. Contract 2.9.
func TestPasswordsBeyondBcrypt(t *testing.T) {
	t.Parallel()
	p := NewPasswords(1, 4)
	longest := "Aa0" + strings.Repeat("x", 69)
	stored := must.Get(p.Hash(t.Context(), "", longest))(t)
	for plain, want := range map[string]bool{longest: true, longest + "y": false, longest[:71]: false, "": false} {
		if got, err := p.Matches(stored, plain); err != nil || got != want {
			t.Errorf("%d bytes: %v, %v, want %v", len(plain), got, err, want)
		}
	}
	// Nobody's password is compared at the full cost, and never matches.
	must.Equal(t, "the decoy costs", 4, must.Get(bcrypt.Cost(p.dummyHash))(t))
	if got, err := p.Matches("", longest); got || err != nil {
		t.Errorf("nobody's password matches: %v, %v", got, err)
	}
}
