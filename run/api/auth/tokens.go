package auth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"coldaisle.dev/shared/store/accounts"
)

// tokenLifetime is how long a token is valid after its issue.
const tokenLifetime = 30 * time.Minute

// minKeyBytes is the shortest key for HS256: as long as its output (RFC 7518 §3.2).
const minKeyBytes = 32

// Tokens issues and verifies the bearer tokens of customers.
type Tokens struct {
	secrets [][]byte // the first signs
	keys    jwt.VerificationKeySet
	parser  *jwt.Parser
	clock   func() time.Time
}

// NewTokens reads SECRET_KEY: keys separated by commas, of which the first
// signs and all verify, so that a key can be rotated without ending sessions.
func NewTokens(secret string, clock func() time.Time) (*Tokens, error) {
	t := &Tokens{clock: clock}
	for key := range strings.SplitSeq(secret, ",") {
		key = strings.TrimSpace(key)
		if len(key) < minKeyBytes {
			return nil, fmt.Errorf("SECRET_KEY: every key must have at least %d bytes, one has %d", minKeyBytes, len(key))
		}
		t.secrets = append(t.secrets, []byte(key))
		t.keys.Keys = append(t.keys.Keys, []byte(key))
	}
	t.parser = jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithTimeFunc(clock),
		jwt.WithStrictDecoding(),
		jwt.WithExpirationRequired(),
	)
	return t, nil
}

// Secrets returns the keys, the one that signs first.
func (t *Tokens) Secrets() [][]byte { return t.secrets }

// claims of a token. A token is valid while its generation is the person's.
type claims struct {
	jwt.RegisteredClaims

	Person     int64 `json:"person"`
	Generation int64 `json:"generation"`
}

var errToken = errors.New("token is not valid")

// Issue signs a token of a person's present generation.
func (t *Tokens) Issue(p accounts.Person) (string, error) {
	now := t.clock()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, &claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject:   strconv.FormatInt(p.CustomerID, 10),
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(tokenLifetime)),
		},
		Person: p.ID, Generation: p.Generation,
	}).SignedString(t.secrets[0])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

// session is the content of a token.
type session struct{ customerID, person, generation int64 }

// verify returns the session of a token, or errToken unless one of our keys has signed it
// with HS256 and it has not expired.
func (t *Tokens) verify(text string) (session, error) {
	var c claims
	token, err := t.parser.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return t.keys, nil })
	if err != nil {
		return session{}, fmt.Errorf("%w: %w", errToken, err)
	}
	// The library ignores crit. It names extensions that must be understood, and we
	// have none (RFC 7515 §4.1.11).
	if _, demanded := token.Header["crit"]; demanded {
		return session{}, fmt.Errorf("%w: crit names extensions that are not known", errToken)
	}
	customerID, err := strconv.ParseInt(c.Subject, 10, 64)
	if err != nil {
		return session{}, fmt.Errorf("%w: subject is no customer", errToken)
	}
	return session{customerID, c.Person, c.Generation}, nil
}
