package auth

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"
)

// tokenLifetime is how long a token is valid after its issue.
const tokenLifetime = 30 * time.Minute

// clockSkew is how far ahead of ours another instance's clock may be. A token may be
// issued, or begin to be valid, that much later than now.
const clockSkew = 10 * time.Second

// minKeyBytes is the shortest key for HS256: as long as its output (RFC 7518 §3.2).
const minKeyBytes = 32

// Tokens issues and verifies the bearer tokens of customers.
type Tokens struct {
	signingKey []byte
	keys       jwt.VerificationKeySet
	parser     *jwt.Parser
	clock      func() time.Time
	// known are the tokens whose signature was verified, by their SHA-256: an open page
	// sends one token many times, and to verify it is a third of what the API adds to a
	// cheap request. Times are checked for each request anew.
	known *lru.Cache[[sha256.Size]byte, identity]
}

// maxKnownTokens bounds the cache, to about 3 MB.
const maxKnownTokens = 10_000

// NewTokens takes SECRET_KEY: keys separated by commas, of which the first
// signs and all verify, so that a key can be rotated without ending sessions.
func NewTokens(secret string, clock func() time.Time) (*Tokens, error) {
	known, err := lru.New[[sha256.Size]byte, identity](maxKnownTokens)
	if err != nil {
		return nil, fmt.Errorf("cache of tokens: %w", err)
	}
	t := &Tokens{clock: clock, known: known}
	for key := range strings.SplitSeq(secret, ",") {
		key = strings.TrimSpace(key)
		if len(key) < minKeyBytes {
			return nil, fmt.Errorf("SECRET_KEY: every key must have at least %d bytes, one has %d", minKeyBytes, len(key))
		}
		t.keys.Keys = append(t.keys.Keys, []byte(key))
	}
	t.signingKey = []byte(firstKey(secret))
	t.parser = jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithTimeFunc(clock),
		jwt.WithStrictDecoding(),
	)
	return t, nil
}

func firstKey(secret string) string {
	first, _, _ := strings.Cut(secret, ",")
	return strings.TrimSpace(first)
}

// claims are what a token says. Their times have microseconds, where the library's
// have seconds: a password change revokes every token issued before it (contract 2.8),
// but not that of a login later in the same second.
type claims struct {
	Subject   string       `json:"sub"`
	IssuedAt  *numericDate `json:"iat"`
	ExpiresAt *numericDate `json:"exp"`
	NotBefore *numericDate `json:"nbf,omitempty"`
}

// numericDate is a JSON number of seconds since 1970, to the microsecond.
type numericDate struct{ time.Time }

// MarshalJSON writes the seconds, with a fraction only where there is one.
func (i numericDate) MarshalJSON() ([]byte, error) {
	micros := i.UnixMicro()
	if micros%1_000_000 == 0 {
		return strconv.AppendInt(nil, micros/1_000_000, 10), nil
	}
	return fmt.Appendf(nil, "%d.%06d", micros/1_000_000, micros%1_000_000), nil
}

// UnmarshalJSON reads whole or fractional seconds.
func (i *numericDate) UnmarshalJSON(data []byte) error {
	var seconds float64
	if err := json.Unmarshal(data, &seconds); err != nil {
		return fmt.Errorf("time of a token: %w", err)
	}
	if math.Abs(seconds) > 1e11 {
		return errors.New("time of a token is out of range")
	}
	i.Time = time.UnixMicro(int64(math.Round(seconds * 1e6))).UTC()
	return nil
}

// The jwt library reads the registered claims by these methods. They return
// nothing, so that it checks the signature only; all time rules are in verify.

// GetExpirationTime is not for the library to check.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil } //nolint:nilnil // absent, as the interface has it

// GetIssuedAt is not for the library to check.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil } //nolint:nilnil // absent, as the interface has it

// GetNotBefore is not for the library to check.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil } //nolint:nilnil // absent, as the interface has it

// GetIssuer is not among our claims.
func (c *claims) GetIssuer() (string, error) { return "", nil }

// GetSubject returns the customer's id as the token has it.
func (c *claims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience is not among our claims.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }

// identity is the customer of a token, and its times.
type identity struct {
	customerID                     int64
	issuedAt, notBefore, expiresAt time.Time
}

var errToken = errors.New("token is not valid")

// Issue signs a token for a customer. validAfter is the time of the last
// password change, or zero: the token must count as issued at or after it even
// if another instance's clock is ahead of ours.
func (t *Tokens) Issue(customerID int64, validAfter time.Time) (string, error) {
	now := t.clock()
	issued := now
	if validAfter.After(issued) {
		issued = validAfter
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, &claims{
		Subject:   strconv.FormatInt(customerID, 10),
		IssuedAt:  &numericDate{issued},
		ExpiresAt: &numericDate{now.Add(tokenLifetime)},
	})
	signed, err := token.SignedString(t.signingKey)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

// verify checks a token: signed with HS256 by one of our keys, with a subject,
// an issue and an expiry, and valid now.
func (t *Tokens) verify(text string) (identity, error) {
	sum := sha256.Sum256([]byte(text))
	who, known := t.known.Get(sum)
	if !known {
		var err error
		if who, err = t.read(text); err != nil {
			return identity{}, err
		}
	}
	now := t.clock()
	switch {
	case !now.Before(who.expiresAt):
		return identity{}, fmt.Errorf("%w: expired", errToken)
	case who.issuedAt.After(now.Add(clockSkew)):
		return identity{}, fmt.Errorf("%w: issued in the future", errToken)
	case who.notBefore.After(now.Add(clockSkew)):
		return identity{}, fmt.Errorf("%w: not valid yet", errToken)
	}
	if !known {
		t.known.Add(sum, who)
	}
	return who, nil
}

// read checks all of a token but its times.
func (t *Tokens) read(text string) (identity, error) {
	var c claims
	token, err := t.parser.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return t.keys, nil })
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errToken, err)
	}
	// The library ignores crit. It names extensions that must be understood, and we
	// have none (RFC 7515 §4.1.11).
	if _, demanded := token.Header["crit"]; demanded {
		return identity{}, fmt.Errorf("%w: crit names extensions that are not known", errToken)
	}
	if c.Subject == "" || c.IssuedAt == nil || c.ExpiresAt == nil {
		return identity{}, fmt.Errorf("%w: a claim is missing", errToken)
	}
	id, err := strconv.ParseInt(c.Subject, 10, 64)
	if err != nil || id < 1 || strconv.FormatInt(id, 10) != c.Subject {
		return identity{}, fmt.Errorf("%w: subject is no customer", errToken)
	}
	who := identity{customerID: id, issuedAt: c.IssuedAt.Time, expiresAt: c.ExpiresAt.Time}
	if c.NotBefore != nil {
		who.notBefore = c.NotBefore.Time
	}
	return who, nil
}
