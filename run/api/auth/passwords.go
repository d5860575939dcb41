package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
)

// DefaultPasswordCost is bcrypt's cost for stored passwords: about a quarter of a
// second of one core.
const DefaultPasswordCost = 12

// Passwords hashes and compares passwords, a limited number at once, because each
// occupies a core for as long as hundreds of other requests.
type Passwords struct {
	queue *fairqueue.Queue[client]
	cost  int
	// dummyHash is compared if no customer has the given e-mail, so that the answer takes as
	// long as for a wrong password.
	dummyHash []byte
}

// NewPasswords allows concurrent hashes at a time, at least one. The dummy hash is a text
// of the right form and not computed, so that an instance starts at once; comparing
// with it takes as long as with a real hash.
func NewPasswords(concurrent, cost int) *Passwords {
	dummyHash := fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat("u", saltAndHash))
	queue := fairqueue.New[client](fairqueue.Limits{Slots: concurrent, MaxWaiting: [2]int{MaxWaiting, maxKnown}, MaxWait: MaxPasswordWait})
	return &Passwords{queue: queue, cost: cost, dummyHash: dummyHash}
}

// saltAndHash is how many characters of a bcrypt hash follow its cost.
const saltAndHash = 22 + 31

const (
	// MaxPasswordWait is how long a request waits for a password slot.
	MaxPasswordWait = 10 * time.Second
	// MaxWaiting is how many requests of an instance may wait at a time, and maxKnown how many
	// more with a device cookie. We let Cloud Run send up to 80 requests to an instance; the
	// rest is for all other operations.
	MaxWaiting = 40
	maxKnown   = 24
)

// ErrBusy answers a request that got no password slot in time.
var ErrBusy = rest.Busy("Too many logins and registrations at once; try again in a moment", MaxPasswordWait)

// client identifies who waits: an address, or a login with its device cookie.
type client struct {
	address netip.Prefix
	email   string
}

// Acquire waits for a password slot, fairly among clients (contract 2.9). known is the e-mail
// address for which the request has a device cookie or a token, or empty. Call it before any query
// of the request, so that a flood does not reach the database.
func (p *Passwords) Acquire(ctx context.Context, known string) (done func(), err error) {
	in, who := fairqueue.Unknown, client{address: Client(ctx)}
	if known != "" {
		in, who = fairqueue.Known, client{email: strings.ToLower(known)}
	}
	limited, cancel := context.WithTimeout(ctx, MaxPasswordWait)
	defer cancel()
	done, err = p.queue.Acquire(limited, in, who)
	if errors.Is(err, fairqueue.ErrNoSlot) && in == fairqueue.Known && limited.Err() == nil {
		// The lane is full of others: wait as a client without a cookie does.
		done, err = p.queue.Acquire(limited, fairqueue.Unknown, client{address: Client(ctx)})
	}
	if err != nil && ctx.Err() == nil { // no slot became free in time
		return nil, ErrBusy
	}
	return done, err
}

// Hash returns the bcrypt hash of a password of at most 72 bytes, with a new salt.
// It waits for a password slot as [Passwords.Acquire] does.
func (p *Passwords) Hash(ctx context.Context, known, plain string) (string, error) {
	done, err := p.Acquire(ctx, known)
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

// Matches compares a password with a stored hash, or with the dummy hash, which
// never matches, when stored is empty. The caller holds a password slot.
func (p *Passwords) Matches(stored, plain string) (bool, error) {
	hashed := []byte(stored)
	if stored == "" {
		hashed = p.dummyHash
	}
	err := bcrypt.CompareHashAndPassword(hashed, []byte(plain))
	if err != nil && !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, fmt.Errorf("compare password: %w", err)
	}
	// bcrypt ignores all after the 72nd byte; no stored password is longer.
	return err == nil && stored != "" && len(plain) <= input.MaxPasswordBytes, nil
}
