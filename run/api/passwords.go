package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// passwordCost is bcrypt's cost for stored passwords: about a quarter of a
// second of one core.
const passwordCost = 12

// passwords hashes and compares passwords, only so many at once: each takes a
// core for as long as hundreds of other requests would.
type passwords struct {
	slots chan struct{}
	cost  int
	// decoy is compared with when there is no customer of the given e-mail, so
	// that the answer takes as long as for a wrong password.
	decoy []byte
}

// newPasswords allows so many hashes at a time, at least one. The decoy is made
// up, not computed: a comparison with it takes as long as with any, and an
// instance need not hash before it can serve.
func newPasswords(concurrent, cost int) *passwords {
	decoy := fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat("u", saltAndHash))
	return &passwords{slots: make(chan struct{}, max(1, concurrent)), cost: cost, decoy: decoy}
}

// saltAndHash is how many characters of a bcrypt hash follow its cost.
const saltAndHash = 22 + 31

// acquire waits for a slot, or for the request to end.
func (p *passwords) acquire(ctx context.Context) (release func(), err error) {
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to check a password: %w", ctx.Err())
	}
}

// hash returns the bcrypt hash of a password of at most 72 bytes, salted anew.
func (p *passwords) hash(ctx context.Context, plain string) (string, error) {
	release, err := p.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	hashed, err := bcrypt.GenerateFromPassword([]byte(plain), p.cost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return string(hashed), nil
}

// matches compares a password with a stored hash, or with the decoy when
// stored is empty, which never matches.
func (p *passwords) matches(ctx context.Context, stored, plain string) (bool, error) {
	release, err := p.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	hashed := []byte(stored)
	if stored == "" {
		hashed = p.decoy
	}
	err = bcrypt.CompareHashAndPassword(hashed, []byte(plain))
	if err != nil && !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, fmt.Errorf("compare password: %w", err)
	}
	// bcrypt ignores what follows the 72nd byte; no stored password is longer.
	return err == nil && stored != "" && len(plain) <= maxPasswordBytes, nil
}
