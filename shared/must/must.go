// Package must states an assumption of a test in one line: no error, an equal value, an event.
package must

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Do ends the test at an error: must.Do(t, db.DeleteRoom(ctx, customer, id)).
func Do(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Get returns the value of a call, and ends the test at its error:
// must.Get(db.Room(ctx, customer, id))(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		Do(tb, err)
		return value
	}
}

// Equal reports how a value differs from the wanted one, and what it is; the test goes on.
func Equal(tb testing.TB, what string, want, got any, options ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Contain reports which texts are not part of what was said; the test goes on.
func Contain(tb testing.TB, what, said string, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			tb.Errorf("%s lacks %q:\n%s", what, text, said)
		}
	}
}

// Fail reports an error that is not the wanted one; the test goes on.
func Fail(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// Err is the error of a call whose value does not matter: must.Fail(t, "deleted", must.Err(db.Rule(ctx, id)), store.ErrNoRule).
func Err[T any](_ T, err error) error { return err }

// Hold reports, in the words given, what does not hold; the test goes on.
func Hold(tb testing.TB, holds bool, format string, args ...any) {
	tb.Helper()
	if !holds {
		tb.Errorf(format, args...)
	}
}

// Eventually waits until holds returns true, and fails the test after five minutes.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.After(5 * time.Minute); !holds(); {
		select {
		case <-end:
			tb.Fatalf("waited in vain: %s", what)
		case <-time.After(5 * time.Millisecond): // between two looks
		}
	}
}
