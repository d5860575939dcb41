// Package parallel spreads work that needs the processor over its cores.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// For runs work(i) for i from 0 to n-1, in as many goroutines as there are cores.
// Which of them runs which i differs from run to run; results must not depend on it. A panic in
// one is the caller's, with its stack: there it would end the process.
func For(n int, work func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	var panicked atomic.Pointer[string]
	for range min(runtime.GOMAXPROCS(0), n) {
		group.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					panicked.Store(new(fmt.Sprintf("%v\n%s", value, debug.Stack())))
				}
			}()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	group.Wait()
	if text := panicked.Load(); text != nil {
		panic(*text)
	}
}
