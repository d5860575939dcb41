// Package forest holds the two tree ensembles of Coldaisle: the isolation
// forest (Liu, Ting and Zhou, "Isolation Forest", ICDM 2008), which scores how
// anomalous a row of numbers is, and the random forest regressor (Breiman,
// "Random Forests", Machine Learning 45, 2001), which predicts a number.
//
// It knows nothing of readings; shared/learn builds the detector and the
// forecaster from it. Rows are of equally many finite numbers, at most 255, because an
// artifact stores the number of a node's feature in a byte. Both forests are made for two cores and a short run: trees
// are flat arrays of small nodes, and are grown in parallel; several are walked at
// a time. Each tree has a random source of its own, seeded by the forest's seed and
// the tree's number, and sums have a fixed order: the same rows, options and seed
// give the same forest, bit for bit, on any number of cores.
package forest

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// ParallelFor runs work(i) for i from 0 to n-1, in as many goroutines as there are cores.
// Which of them runs which i differs from run to run; results must not depend on it.
func ParallelFor(n int, work func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	group.Wait()
}
