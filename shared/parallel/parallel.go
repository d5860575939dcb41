// Package parallel spreads work that needs the processor over its cores, and keeps a panic in one
// goroutine from ending the process.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// PanicError is the text of a panic, with its stack, as an error.
type PanicError string

func (p PanicError) Error() string { return string(p) }

// Recover sets err to a [PanicError]. It is to be deferred by work that runs in a goroutine of its own,
// where a panic would end the process.
func Recover(err *error) {
	if value := recover(); value != nil {
		*err = PanicError(fmt.Sprintf("panic: %v\n%s", value, debug.Stack()))
	}
}

// For runs work(i) for i from 0 to n-1, in as many goroutines as there are cores.
// Which of them runs which i differs from run to run; results must not depend on it. A panic in
// one is the caller's, with its stack: there it would end the process.
func For(n int, work func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	var panicked atomic.Pointer[error]
	for range min(runtime.GOMAXPROCS(0), n) {
		group.Go(func() {
			var err error
			defer func() {
				if err != nil {
					panicked.Store(&err)
				}
			}()
			defer Recover(&err)
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	group.Wait()
	if err := panicked.Load(); err != nil {
		panic(*err)
	}
}
