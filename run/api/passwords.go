package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/run/api/fairqueue"
)

// passwordCost is bcrypt's cost for stored passwords: about a quarter of a
// second of one core.
const passwordCost = 12

// passwords hashes and compares passwords. It limits how many at once: each takes
// a core for as long as hundreds of other requests.
type passwords struct {
	queue *fairqueue.Queue[netip.Prefix]
	cost  int
	// dummyHash is compared with when no customer has the given e-mail, so that the
	// answer takes as long as for a wrong password.
	dummyHash []byte
}

// newPasswords allows so many hashes at a time, at least one. The dummy hash is
// written, not computed: comparing with it takes as long as with a real one, and
// an instance starts without computing a hash.
func newPasswords(concurrent, cost int) *passwords {
	dummyHash := fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat("u", saltAndHash))
	queue := fairqueue.New[netip.Prefix](fairqueue.Limits{Slots: concurrent, MaxWaiting: maxWaiting, MaxWait: maxPasswordWait})
	return &passwords{queue: queue, cost: cost, dummyHash: dummyHash}
}

// saltAndHash is how many characters of a bcrypt hash follow its cost.
const saltAndHash = 22 + 31

const (
	// maxPasswordWait is how long a request waits for a password slot.
	maxPasswordWait = 10 * time.Second
	// maxWaiting is how many requests of an instance wait at a time: of the 80 that
	// Cloud Run sends to one, as we configure it, it leaves some to all else.
	maxWaiting = 64
)

// busy answers a request that got no password slot in time.
func busy() *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Detail: "Too many logins and registrations at once; try again in a moment", RetryAfter: maxPasswordWait,
	}
}

// acquire waits for a password slot, fairly among clients. Call it before any
// query of the request: a flood must not reach the database either.
func (p *passwords) acquire(ctx context.Context) (done func(), err error) {
	done, err = p.queue.Acquire(ctx, clientOf(ctx))
	if errors.Is(err, fairqueue.ErrBusy) {
		return nil, busy()
	}
	return done, err
}

// hash returns the bcrypt hash of a password of at most 72 bytes, salted anew.
// It waits for a password slot.
func (p *passwords) hash(ctx context.Context, plain string) (string, error) {
	done, err := p.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	hashed, err := bcrypt.GenerateFromPassword([]byte(plain), p.cost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return string(hashed), nil
}

// matches compares a password with a stored hash, or with the decoy when
// stored is empty, which never matches. The caller holds a password slot.
func (p *passwords) matches(stored, plain string) (bool, error) {
	hashed := []byte(stored)
	if stored == "" {
		hashed = p.dummyHash
	}
	err := bcrypt.CompareHashAndPassword(hashed, []byte(plain))
	if err != nil && !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, fmt.Errorf("compare password: %w", err)
	}
	// bcrypt ignores what follows the 72nd byte; no stored password is longer.
	return err == nil && stored != "" && len(plain) <= maxPasswordBytes, nil
}
