package parallel_test

import (
	"fmt"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/parallel"
)

// TestPanicOfOneIsTheCallers has one of several panic, which the caller can recover from.
func TestPanicOfOneIsTheCallers(t *testing.T) {
	t.Parallel()
	defer func() { must.Contain(t, "panic", fmt.Sprint(recover()), "of the fifth", "parallel_test.go") }()
	parallel.For(8, func(i int) {
		if i == 5 {
			panic("of the fifth")
		}
	})
}
