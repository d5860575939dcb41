package closing_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/closing"
)

func TestCloseIsInReverseOrderAndNamesEachError(t *testing.T) {
	t.Parallel()
	var stack closing.Stack
	if err := stack.Close(); err != nil {
		t.Errorf("nothing to close: %v", err)
	}
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
	if diff := cmp.Diff([]string{"table", "topic", "client", "pool"}, closed); diff != "" {
		t.Errorf("closed (-want +got):\n%s", diff)
	}
	if !errors.Is(err, broken) || !errors.Is(err, stuck) || err.Error() != "close topic: broken\nclose pool: stuck" {
		t.Errorf("error %v", err)
	}
	closed = nil
	push("late", nil)
	if err := stack.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if diff := cmp.Diff([]string{"late"}, closed); diff != "" {
		t.Errorf("closed by the second close (-want +got):\n%s", diff)
	}
}
