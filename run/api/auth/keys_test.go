package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/accounts"
)

// fakeKeys counts queries. Each takes a millisecond, and finds the keys that stand when it begins.
type fakeKeys struct {
	mutex   sync.Mutex
	keys    map[accounts.KeyHash]accounts.APIKey
	queries int
	noted   []int64
	err     error
}

func newKeys() (*fakeKeys, *Keys) {
	stored := &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
	return stored, NewKeys(stored, time.Now, logging.Discard())
}

func (f *fakeKeys) APIKeysByHash(_ context.Context, hashes []accounts.KeyHash) (map[accounts.KeyHash]accounts.APIKey, error) {
	defer time.Sleep(time.Millisecond)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.queries++
	found := map[accounts.KeyHash]accounts.APIKey{}
	for _, hash := range hashes {
		if key, ok := f.keys[hash]; ok {
			found[hash] = key
		}
	}
	return found, f.err
}

func (f *fakeKeys) RecordAPIKeyUses(_ context.Context, ids []int64) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.noted = append(f.noted, ids...)
	for hash, key := range f.keys {
		if slices.Contains(ids, key.ID) {
			key.LastUsedAt = new(time.Now())
			f.keys[hash] = key
		}
	}
	return f.err
}

// add stores a new key.
func (f *fakeKeys) add(id int64, expires *time.Time) string {
	text, _, hash := NewKey()
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.keys[hash] = accounts.APIKey{ID: id, CustomerID: 7, Scope: rest.ScopeRead, ExpiresAt: expires}
	return text
}

func (f *fakeKeys) remove(text string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.keys, sha256.Sum256([]byte(text)))
}

// TestKeyForm holds keys to the regular expression that SECURITY.md gives to scanners,
// and shows that one with another character anywhere needs no query. Contract 12.1.
func TestKeyForm(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/SECURITY.md"))(t)
	const form = `cold_[0-9A-Za-z]{49}`
	must.Contain(t, "SECURITY.md", string(page), "`"+form+"`")
	seen := map[string]bool{}
	for range 100 {
		text, shown, hash := NewKey()
		if !regexp.MustCompile("^"+form+"$").MatchString(text) || !strings.HasPrefix(text, shown) || len(shown) != 9 || hash != sha256.Sum256([]byte(text)) {
			t.Fatalf("%s, %s, %x", text, shown, hash)
		}
		if !wellFormed(text) || seen[text] {
			t.Errorf("%s is not well-formed, or not new", text)
		}
		seen[text] = true
	}
	text, _, _ := NewKey()
	for i := range text {
		other := byte('x')
		if text[i] == other {
			other = 'y'
		}
		must.Equal(t, "another is well-formed", false, wellFormed(text[:i]+string(other)+text[i+1:]))
	}
	for _, wrong := range []string{"", keyPrefix, text[:53], text + "0", "cold_" + strings.Repeat("é", 24) + "x", strings.Repeat("0", 54)} {
		must.Equal(t, wrong+" is well-formed", false, wellFormed(wrong))
	}
}

// TestKeyEnds finds a key until it is revoked or expires. Contract 12.1.
func TestKeyEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, k := newKeys()
		find := func(text string, want error) {
			t.Helper()
			if key, err := k.find(t.Context(), text); !errors.Is(err, want) || err == nil && key.CustomerID != 7 {
				t.Errorf("%+v, %v, want %v", key, err, want)
			}
		}
		text := stored.add(1, nil)
		find(text, nil)
		stored.remove(text)
		find(text, errToken)
		brief := stored.add(2, new(time.Now().Add(2*time.Second)))
		find(brief, nil)
		time.Sleep(2 * time.Second)
		find(brief, errToken)
		stored.queries = 0
		find("cold_"+strings.Repeat("0", 49), errToken) // its sum is wrong
		must.Equal(t, "a query for what is no key", 0, stored.queries)
		stored.err = errors.New("the database is away")
		find(stored.add(3, nil), stored.err)
	})
}

// TestKeyGuesses has somebody try many keys: they are looked up together. Contract 12.1.
func TestKeyGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, k := newKeys()
		const guesses = 3 * maxLookups
		var all sync.WaitGroup
		for range guesses {
			all.Go(func() {
				guess, _, _ := NewKey()
				_, err := k.find(t.Context(), guess)
				must.Fail(t, "a guess", err, errToken)
			})
		}
		all.Wait()
		if most := guesses/maxLookups + 2; stored.queries > most {
			t.Errorf("%d queries for %d guesses, want %d at most", stored.queries, guesses, most)
		}
	})
}

// TestKeyUse notes a use once a minute, while no request waits for it. Contract 12.1.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, k := newKeys()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go k.Run(ctx)
		text := stored.add(1, nil)
		for range 150 {
			must.Get(k.find(ctx, text))(t)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		must.Equal(t, "noted in 150 s", "[1 1 1]", fmt.Sprint(stored.noted))
	})
	// With nobody who notes, requests go on.
	stored, k := newKeys()
	for id := range int64(maxLookups + 10) {
		must.Get(k.find(t.Context(), stored.add(id, nil)))(t)
	}
}
