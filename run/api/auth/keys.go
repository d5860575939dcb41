package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/store"
)

// The form of an API key: the prefix, 256 random bits and the CRC-32 of both, in
// digits and letters. Scanners for secrets find one by its form and its sum without
// asking us; docs/SECURITY.md has the regular expression.
const (
	keyPrefix    = "cold_"
	keyDigits    = 43 // of base 62, for 256 bits
	keySumDigits = 6  // for 32 bits
	// keyShown is how much of a key lists show.
	keyShown = len(keyPrefix) + 4
)

// NewKey makes an API key. Only its hash is stored, and its begin to show.
func NewKey() (text, shown string, hash store.KeyHash) {
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

// wellFormed reports whether a text may be a key. What is mistyped or cut off so
// needs no query.
func wellFormed(text string) bool {
	begin := len(text) - keySumDigits
	return len(text) == len(keyPrefix)+keyDigits+keySumDigits && strings.HasPrefix(text, keyPrefix) && keySum(text[:begin]) == text[begin:]
}

const (
	// maxKeys bounds the keys that are remembered, and those that are not known.
	maxKeys = 20_000
	// maxKeyLookups bounds the keys of one query.
	maxKeyLookups = 1000
	// keyTimeout is for one query of keys.
	keyTimeout = 10 * time.Second
	// keyUseInterval is how often an instance notes that a key is used.
	keyUseInterval = time.Minute
)

// KeyStore has the keys by their hashes. Those that are not known are absent.
type KeyStore interface {
	APIKeysByHash(ctx context.Context, hashes []store.KeyHash) (map[store.KeyHash]store.APIKey, error)
	NoteAPIKeyUses(ctx context.Context, ids []int64) error
}

// Keys finds API keys, and caches them for sessionCacheTTL: one that is revoked
// through another instance is refused after that time, through this one at once.
//
// Unknown keys have a cache of their own, so that guesses evict no key. Those that
// are in no cache are looked up together, one query at a time: a flood of guesses
// makes queries larger and not more.
type Keys struct {
	clock   func() time.Time
	store   KeyStore
	log     *slog.Logger
	lookups *coalesce.Group[store.KeyHash, *store.APIKey]
	used    chan int64

	mutex   sync.Mutex
	known   *simplelru.LRU[store.KeyHash, knownKey]
	unknown *simplelru.LRU[store.KeyHash, time.Time] // until when
	// changes counts revocations. What was loaded before one must not be cached after it.
	changes uint64
}

type knownKey struct {
	key     store.APIKey
	expires time.Time // of the cache
	noted   time.Time // when its use was
}

// NewKeys returns the keys of a store.
func NewKeys(keys KeyStore, clock func() time.Time, log *slog.Logger) *Keys {
	known, err := simplelru.NewLRU[store.KeyHash, knownKey](maxKeys, nil)
	unknown, otherErr := simplelru.NewLRU[store.KeyHash, time.Time](maxKeys, nil)
	if err := errors.Join(err, otherErr); err != nil {
		panic(err) // only of a size below one
	}
	k := &Keys{clock: clock, store: keys, log: log, known: known, unknown: unknown, used: make(chan int64, maxKeyLookups)}
	k.lookups = coalesce.New(k.load, coalesce.Options[store.KeyHash]{MaxItems: maxKeyLookups})
	return k
}

func (k *Keys) load(ctx context.Context, hashes []store.KeyHash) ([]*store.APIKey, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	found, err := k.store.APIKeysByHash(ctx, hashes)
	if err != nil {
		return nil, err
	}
	keys := make([]*store.APIKey, len(hashes))
	for i, hash := range hashes {
		if key, ok := found[hash]; ok {
			keys[i] = &key
		}
	}
	return keys, nil
}

// find returns the key of a text, or errToken.
func (k *Keys) find(ctx context.Context, text string) (store.APIKey, error) {
	if !wellFormed(text) {
		return store.APIKey{}, errToken
	}
	hash := store.KeyHash(sha256.Sum256([]byte(text)))
	now := k.clock()
	k.mutex.Lock()
	cached, ok := k.known.Get(hash)
	ok = ok && now.Before(cached.expires)
	until, refused := k.unknown.Get(hash)
	changes := k.changes
	k.mutex.Unlock()
	if refused && now.Before(until) {
		return store.APIKey{}, errToken
	}
	if !ok {
		loaded, err := k.lookups.Do(ctx, hash)
		if err != nil {
			return store.APIKey{}, err
		}
		if loaded == nil {
			k.mutex.Lock()
			k.unknown.Add(hash, now.Add(sessionCacheTTL))
			k.mutex.Unlock()
			return store.APIKey{}, errToken
		}
		cached.key, cached.expires = *loaded, now.Add(sessionCacheTTL)
	}
	if cached.key.ExpiresAt != nil && !now.Before(*cached.key.ExpiresAt) {
		return store.APIKey{}, errToken
	}
	if now.Sub(cached.noted) >= keyUseInterval {
		select {
		case k.used <- cached.key.ID:
			cached.noted = now
		default: // the database is slow: the next use is noted
		}
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if changes == k.changes {
		k.known.Add(hash, cached)
	}
	return cached.key, nil
}

// Invalidate empties the cache; call it once a key is deleted.
func (k *Keys) Invalidate() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.changes++
	k.known.Purge()
}

// Run notes when keys are used, until ctx ends; it then returns nil. No request waits
// for it.
func (k *Keys) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-k.used:
			ids := []int64{id}
			for range len(k.used) {
				ids = append(ids, <-k.used)
			}
			if err := k.noteUses(ctx, ids); err != nil && ctx.Err() == nil {
				k.log.ErrorContext(ctx, "noting the use of API keys failed", "error", err.Error())
			}
		}
	}
}

func (k *Keys) noteUses(ctx context.Context, ids []int64) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	return k.store.NoteAPIKeyUses(ctx, ids)
}
