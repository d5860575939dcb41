// Package closing closes what a program has opened, in reverse order. Programs push each
// resource once it is open, and close the stack at their end, or when the next resource
// fails to open.
package closing

import (
	"errors"
	"fmt"
	"slices"
)

// Stack holds the open resources. The zero value is empty. It is for one goroutine at a
// time.
type Stack struct{ opened []opened }

type opened struct {
	name  string
	close func() error
}

// Push adds a resource that has just been opened; name is for errors of its closing.
func (s *Stack) Push(name string, end func() error) {
	s.opened = append(s.opened, opened{name, end})
}

// Close closes everything, the last opened first, whatever fails on the way. It
// returns all errors with the names. A second call closes only what was pushed
// since.
func (s *Stack) Close() error {
	all := s.opened
	s.opened = nil
	var errs []error
	for _, o := range slices.Backward(all) {
		if err := o.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", o.name, err))
		}
	}
	return errors.Join(errs...)
}

// NoError adapts a function that cannot fail to [Stack.Push].
func NoError(end func()) func() error {
	return func() error {
		end()
		return nil
	}
}
