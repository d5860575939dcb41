// Package must ends a test at an error that the test is not about.
package must

import "testing"

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
