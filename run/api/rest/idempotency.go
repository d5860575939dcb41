package rest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const (
	idempotencyHeader = "Idempotency-Key"
	// maxIdempotencyKey bounds such a key, in bytes.
	maxIdempotencyKey = 255
)

// Repeatable is a request with an Idempotency-Key: a repeat of it gets the first answer
// (contract 1.17). Answers may hold secrets that nothing else stores, so they are encrypted with
// a key derived from SECRET_KEY and the Idempotency-Key.
type Repeatable struct {
	RequestHash [sha256.Size]byte // of the body
	key         string
	aeads       []cipher.AEAD // one for each secret; the first encrypts
}

// KeyHashOf returns the hash of the Idempotency-Key, scoped to a caller.
func (r Repeatable) KeyHashOf(caller string) [sha256.Size]byte {
	return sha256.Sum256([]byte(caller + "\x00" + r.key))
}

var (
	// ErrOtherRequest answers an Idempotency-Key that was used with another body.
	ErrOtherRequest = BadRequest(idempotencyHeader + ": was used for a request with another body")
	// ErrTooManyAnswers answers an account that has used too many Idempotency-Keys.
	ErrTooManyAnswers = NewError(http.StatusTooManyRequests, "Too many requests with an "+idempotencyHeader+" within 24 hours; leave it out")
	// errLostAnswer answers a repeat of a request whose answer's SECRET_KEY is gone.
	errLostAnswer = Conflict(idempotencyHeader + ": the first answer can no longer be read; look for what it made")
)

type repeatableKey struct{}

// RepeatableOf returns the request's Idempotency-Key, or false without one.
func RepeatableOf(ctx context.Context) (Repeatable, bool) {
	r, ok := ctx.Value(repeatableKey{}).(Repeatable)
	return r, ok
}

// repeatable puts the Idempotency-Key of a request into the context.
func (r *API) repeatable(ctx huma.Context, body []byte) (huma.Context, *Error) {
	key := ctx.Header(idempotencyHeader)
	if key == "" || ctx.Operation().Metadata[creates] == nil {
		return ctx, nil
	}
	if len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(c rune) bool { return c < '!' || c > '~' }) {
		return nil, BadRequest(fmt.Sprintf("%s: expected at most %d visible characters of ASCII", idempotencyHeader, maxIdempotencyKey))
	}
	repeatable := Repeatable{key: key, RequestHash: sha256.Sum256(body)}
	for _, secret := range r.config.Secrets {
		mac := hmac.New(sha256.New, secret)
		_, _ = mac.Write([]byte("idempotent answer\x00" + key)) // it never fails
		block, _ := aes.NewCipher(mac.Sum(nil))                 // it fails for keys of other lengths alone
		aead, _ := cipher.NewGCMWithRandomNonce(block)          // it fails for other ciphers alone
		repeatable.aeads = append(repeatable.aeads, aead)
	}
	return huma.WithValue(ctx, repeatableKey{}, repeatable), nil
}

// Encrypt encrypts an answer.
func (r Repeatable) Encrypt(answer []byte) []byte {
	return r.aeads[0].Seal(nil, nil, answer, nil) //nolint:gosec // the cipher makes the nonce
}

// Decrypt reads an answer that Encrypt made with any of the secrets.
func (r Repeatable) Decrypt(encrypted []byte) ([]byte, error) {
	for _, aead := range r.aeads {
		if answer, err := aead.Open(nil, nil, encrypted, nil); err == nil {
			return answer, nil
		}
	}
	return nil, errLostAnswer
}

// creates marks the operations whose answers are kept, in huma's metadata of an operation.
const creates = "creates"

// idempotencySentence is in the description of operations that create something.
const idempotencySentence = "A repeat with the same `" + idempotencyHeader + "` and body within 24 hours gets the first answer."
