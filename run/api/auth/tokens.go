package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// of reports whether the token is of a person's present generation.
func (c claims) of(p accounts.Person) bool {
	return c.Subject == strconv.FormatInt(p.CustomerID, 10) && c.Person == p.ID && c.Generation == p.Generation
}

// verify returns the claims of a token, or errToken unless one of our keys has signed it
// with HS256 and it has not expired.
func (t *Tokens) verify(text string) (claims, error) {
	var c claims
	token, err := t.parser.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return t.keys, nil })
	if err != nil {
		return claims{}, fmt.Errorf("%w: %w", errToken, err)
	}
	// The library ignores crit. It names extensions that must be understood, and we
	// have none (RFC 7515 §4.1.11).
	if _, demanded := token.Header["crit"]; demanded {
		return claims{}, fmt.Errorf("%w: crit names extensions that are not known", errToken)
	}
	return c, nil
}

// deviceLifetime is how long a device cookie is valid after the last login.
const deviceLifetime = 180 * 24 * time.Hour

// DeviceCookie is for a browser or program that has logged in by an e-mail address: it opens a
// lane of the password queue, only for that address, and grants nothing else.
// See https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies.
func (t *Tokens) DeviceCookie(email string) http.Cookie {
	ends := t.clock().Add(deviceLifetime).Unix()
	return http.Cookie{
		Name: deviceName(email), Value: fmt.Sprintf("%d.%s", ends, deviceSignature(t.secrets[0], email, ends)), Path: "/api/v1/customers/login",
		MaxAge: int(deviceLifetime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// KnownDevice reports whether a Cookie header has a valid device cookie of an e-mail address.
func (t *Tokens) KnownDevice(header, email string) bool {
	cookies, err := http.ParseCookie(header)
	return err == nil && slices.ContainsFunc(cookies, func(c *http.Cookie) bool {
		until, signature, _ := strings.Cut(c.Value, ".")
		ends, err := strconv.ParseInt(until, 10, 64)
		return err == nil && c.Name == deviceName(email) && t.clock().Unix() < ends && slices.ContainsFunc(t.secrets, func(secret []byte) bool {
			return hmac.Equal([]byte(signature), []byte(deviceSignature(secret, email, ends)))
		})
	})
}

// deviceName is the cookie's name, different for each person of a browser.
func deviceName(email string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(email)))
	return fmt.Sprintf("device-%x", sum[:8])
}

func deviceSignature(secret []byte, email string, ends int64) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "device cookie\x00%s\x00%d", strings.ToLower(email), ends) // it never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
