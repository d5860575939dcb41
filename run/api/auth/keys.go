package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"log/slog"
	"math/big"
	"strings"
	"time"

	"coldaisle.dev/shared/coalesce"
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

// wellFormed reports whether a text may be a key, so that a mistyped or cut one needs no
// query.
func wellFormed(text string) bool {
	begin := len(text) - keySumDigits
	return len(text) == len(keyPrefix)+keyDigits+keySumDigits && strings.HasPrefix(text, keyPrefix) && keySum(text[:begin]) == text[begin:]
}

// keyUseInterval is how often the use of keys is recorded.
const keyUseInterval = time.Minute

// KeyStore has the keys by their hashes. Unknown ones are absent.
type KeyStore interface {
	APIKeysByHash(ctx context.Context, hashes []accounts.KeyHash) (map[accounts.KeyHash]accounts.APIKey, error)
	RecordAPIKeyUses(ctx context.Context, ids []int64) error
}

// Keys finds API keys in the database, those of concurrent requests together.
type Keys struct {
	clock   func() time.Time
	store   KeyStore
	log     *slog.Logger
	lookups *coalesce.Group[accounts.KeyHash, *accounts.APIKey]
	used    chan int64
}

// NewKeys returns the keys of a store.
func NewKeys(keys KeyStore, clock func() time.Time, log *slog.Logger) *Keys {
	return &Keys{clock: clock, store: keys, log: log, lookups: together(keys.APIKeysByHash), used: make(chan int64, maxLookups)}
}

// find returns the key of a text, or errToken.
func (k *Keys) find(ctx context.Context, text string) (accounts.APIKey, error) {
	if !wellFormed(text) {
		return accounts.APIKey{}, errToken
	}
	key, err := k.lookups.Do(ctx, sha256.Sum256([]byte(text)))
	now := k.clock()
	switch {
	case err != nil:
		return accounts.APIKey{}, err
	case key == nil, key.ExpiresAt != nil && !now.Before(*key.ExpiresAt):
		return accounts.APIKey{}, errToken
	}
	if key.LastUsedAt == nil || now.Sub(*key.LastUsedAt) >= keyUseInterval {
		select {
		case k.used <- key.ID:
		default: // the database is slow: a later use is recorded
		}
	}
	return *key, nil
}

// Run records when keys are used, until ctx ends. No request waits for it.
func (k *Keys) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-k.used:
			ids := []int64{id}
			for range len(k.used) {
				ids = append(ids, <-k.used)
			}
			if err := k.recordUses(ctx, ids); err != nil && ctx.Err() == nil {
				k.log.ErrorContext(ctx, "recording the use of API keys failed", "error", err.Error())
			}
		}
	}
}

func (k *Keys) recordUses(ctx context.Context, ids []int64) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return k.store.RecordAPIKeyUses(ctx, ids)
}
