package forest

import (
	"math"
	"slices"
	"sort"

	"coldaisle.dev/shared/parallel"
)

// maxBins is how many intervals the numbers of a feature are sorted into, so that a row's
// feature is a byte, and a split needs one pass over its rows.
const maxBins = 256

// tailBins bins at each end of a feature hold ever fewer rows towards the extreme. With equally many rows in
// each bin, all rare rows, such as the minutes in which a cooling fails, would share one.
const tailBins = 48

// bins are rows of bins. edges are each feature's upper limits, ascending; the last bin has none.
type bins struct {
	edges [][]float64
	rows  []uint8 // row after row
}

func newBins(rows [][]float64) bins {
	columns := len(rows[0])
	b := bins{edges: make([][]float64, columns), rows: make([]uint8, columns*len(rows))}
	parallel.For(columns, func(column int) {
		values := make([]float64, len(rows))
		for i, row := range rows {
			values[i] = row[column]
		}
		slices.Sort(values)
		b.edges[column] = binEdges(values)
		for i, row := range rows {
			b.rows[i*columns+column] = uint8(sort.SearchFloat64s(b.edges[column], row[column])) //nolint:gosec // at most maxBins-1 edges
		}
	})
	return b
}

// binEdges returns limits between sorted values: between each two if they are few, else at
// ranks that are dense at both ends.
func binEdges(sorted []float64) (edges []float64) {
	if few := slices.Compact(slices.Clone(sorted)); len(few) <= maxBins {
		sorted = few
	}
	for _, rank := range binRanks(len(sorted)) {
		low, high := sorted[rank-1], sorted[rank]
		edge := low + (high-low)/2
		if edge >= high { // neighbours
			edge = low
		}
		if low < high {
			edges = append(edges, edge)
		}
	}
	return edges
}

// binRanks returns the ascending ranks of at most maxBins-1 limits among n values.
func binRanks(n int) (ranks []int) {
	const middle = maxBins - 1 - 2*tailBins
	if n <= maxBins {
		for rank := 1; rank < n; rank++ {
			ranks = append(ranks, rank)
		}
		return ranks
	}
	for i := 1; i <= middle; i++ {
		ranks = append(ranks, i*n/(middle+1))
	}
	growth := math.Exp(math.Log(float64(n)/(middle+1)) / float64(tailBins))
	rank := 1.0
	for i := range tailBins {
		r := max(int(rank), i+1)
		ranks = append(ranks, r, n-r)
		rank *= growth
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
