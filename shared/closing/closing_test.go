package closing_test

import (
	"errors"
	"testing"

	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/must"
)

func TestCloseIsInReverseOrderAndNamesEachError(t *testing.T) {
	t.Parallel()
	var stack closing.Stack
	must.Do(t, stack.Close()) // with nothing to close
	var closed []string
	broken, stuck := errors.New("broken"), errors.New("stuck")
	push := func(name string, err error) {
		stack.Push(name, func() error {
			closed = append(closed, name)
			return err
		})
	}
	push("pool", stuck)
	push("client", nil)
	push("topic", broken)
	stack.Push("table", closing.NoError(func() { closed = append(closed, "table") }))
	err := stack.Close()
	must.Equal(t, "closed", []string{"table", "topic", "client", "pool"}, closed)
	if !errors.Is(err, broken) || !errors.Is(err, stuck) || err.Error() != "close topic: broken\nclose pool: stuck" {
		t.Errorf("error %v", err)
	}
	closed = nil
	push("late", nil)
	must.Do(t, stack.Close()) // again
	must.Equal(t, "closed by the second close", []string{"late"}, closed)
}
