package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
	"time"

	"coldaisle.dev/shared/store/accounts"
)

// The form of an API key: the prefix, 256 random bits and the CRC-32 of both, in
// digits and letters. Scanners for secrets recognise one by its form and checksum without
// calling us; docs/SECURITY.md has the regular expression.
const (
	keyPrefix    = "cold_"
	keyDigits    = 43 // of base 62, for 256 bits
	keySumDigits = 6  // for 32 bits
	// keyShown is how many characters of a key lists show.
	keyShown = len(keyPrefix) + 4
)

// NewKey makes an API key. Only its hash is stored, and its first characters for lists.
func NewKey() (text, shown string, hash accounts.KeyHash) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	text = keyPrefix + base62(new(big.Int).SetBytes(secret[:]), keyDigits)
	text += keySum(text)
	return text, text[:keyShown], sha256.Sum256([]byte(text))
}

func keySum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), keySumDigits)
}

func base62(number *big.Int, digits int) string {
	text := number.Text(62) //nolint:mnd // all digits and letters
	return strings.Repeat("0", digits-len(text)) + text
}

// keyUseInterval is how often the use of keys is recorded.
const keyUseInterval = time.Minute

// findKeys returns the keys with some hashes that have not expired, and records their use.
func (a *Authenticator) findKeys(ctx context.Context, hashes []accounts.KeyHash) (map[accounts.KeyHash]accounts.APIKey, error) {
	found, err := a.accounts.APIKeysByHash(ctx, hashes)
	now := a.clock()
	var used []int64
	for hash, key := range found {
		switch {
		case key.ExpiresAt != nil && !now.Before(*key.ExpiresAt):
			delete(found, hash)
		case key.LastUsedAt == nil || now.Sub(*key.LastUsedAt) >= keyUseInterval:
			used = append(used, key.ID)
		}
	}
	if len(used) > 0 {
		if err := a.accounts.RecordAPIKeyUses(ctx, used); err != nil {
			a.log.ErrorContext(ctx, "recording the use of API keys failed", "error", err.Error())
		}
	}
	return found, err
}
