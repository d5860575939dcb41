package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

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
	err     error // of queries

	recorded []int64
	readOnly error // of records
}

func (f *fakeKeys) PersonsByID(context.Context, []int64) (map[int64]accounts.Person, error) {
	return map[int64]accounts.Person{}, nil
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
	f.recorded = append(f.recorded, ids...)
	for hash, key := range f.keys {
		if slices.Contains(ids, key.ID) {
			key.LastUsedAt = new(time.Now())
			f.keys[hash] = key
		}
	}
	return f.readOnly
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

// TestKeyForm holds keys to the regular expression that SECURITY.md gives to scanners, and to
// their check sum. Contract 12.1.
func TestKeyForm(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/SECURITY.md"))(t)
	const form = `cold_[0-9A-Za-z]{49}`
	if !strings.Contains(string(page), "`"+form+"`") {
		t.Errorf("SECURITY.md has no %s", form)
	}
	seen := map[string]bool{}
	for range 100 {
		text, shown, hash := NewKey()
		if !regexp.MustCompile("^"+form+"$").MatchString(text) || !strings.HasPrefix(text, shown) || len(shown) != 9 || hash != sha256.Sum256([]byte(text)) {
			t.Fatalf("%s, %s, %x", text, shown, hash)
		}
		if begin := len(text) - keySumDigits; keySum(text[:begin]) != text[begin:] || seen[text] {
			t.Errorf("%s has another sum, or is not new", text)
		}
		seen[text] = true
	}
}

// find looks a key up as a request with it does.
func find(t *testing.T, keys *fakeKeys) func(text string) (caller, error) {
	t.Helper()
	a := NewAuthenticator(keys, testTokens(t, testKey, time.Now), time.Now, logging.Discard())
	return func(text string) (caller, error) {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		request.Header.Set("Authorization", "Bearer "+text)
		return a.caller(humago.NewContext(&huma.Operation{}, request, nil))
	}
}

// TestKeyEnds finds a key until it is revoked or expires. Contract 12.1.
func TestKeyEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
		lookUp := find(t, stored)
		wants := func(text string, want error) {
			t.Helper()
			if found, err := lookUp(text); !errors.Is(err, want) || err == nil && found.customerID != 7 {
				t.Errorf("%+v, %v, want %v", found, err, want)
			}
		}
		text := stored.add(1, nil)
		wants(text, nil)
		stored.remove(text)
		wants(text, errToken)
		brief := stored.add(2, new(time.Now().Add(2*time.Second)))
		wants(brief, nil)
		time.Sleep(2 * time.Second)
		wants(brief, errToken)
		wants("cold_", errToken)
		stored.err = errors.New("the database is away")
		wants(stored.add(3, nil), stored.err)
	})
}

// TestKeyGuesses has somebody try many keys: they are looked up together. Contract 12.1.
func TestKeyGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
		lookUp := find(t, stored)
		const guesses = 3 * maxLookups
		var all sync.WaitGroup
		for range guesses {
			all.Go(func() {
				guess, _, _ := NewKey()
				if _, err := lookUp(guess); !errors.Is(err, errToken) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most := guesses/maxLookups + 2; stored.queries > most {
			t.Errorf("%d queries for %d guesses, want %d at most", stored.queries, guesses, most)
		}
	})
}

// TestKeyUse records a use once a minute, and lets requests on if it cannot. Contract 12.1.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := &fakeKeys{keys: map[accounts.KeyHash]accounts.APIKey{}}
		lookUp := find(t, stored)
		text := stored.add(1, nil)
		expired := stored.add(2, new(time.Now()))
		for second := range 150 {
			if _, err := lookUp(text); err != nil {
				t.Fatal(second, err)
			}
			_, _ = lookUp(expired)
			time.Sleep(time.Second)
		}
		must.Equal(t, "recorded in 150 s", "[1 1 1]", fmt.Sprint(stored.recorded))
		stored.readOnly = errors.New("the database is read-only")
		time.Sleep(time.Minute)
		must.Get(lookUp(text))(t)
	})
}
