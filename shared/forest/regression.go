package forest

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"coldaisle.dev/shared/artifact"
)

// RegressionOptions say how a random forest regressor is grown.
type RegressionOptions struct {
	Trees  int
	Leaf   int  // least distinct rows in a leaf, 1 or more
	Median bool // leaves hold the median of their rows, for the least absolute error, instead of the mean
	Seed   uint64
}

// Regression is a random forest regressor. Its methods may be called from many goroutines.
//
// It differs from Breiman in its splits, which lie between at most 256 bins of a feature's numbers, and
// optionally in its leaves, which then hold medians.
type Regression struct{ trees }

// GrowRegression grows a forest that predicts each row's target, a finite number. Each tree grows from a
// bootstrap sample: as many rows as there are, drawn with replacement.
func GrowRegression(rows [][]float64, targets []float64, o RegressionOptions) *Regression {
	b, third := newBins(rows), max(1, len(rows[0])/3)
	return &Regression{grow(len(rows[0]), o.Trees, o.Seed, func(base grower) trees {
		g := regressionGrower{
			grower: base, bins: b, options: o, cells: make([][maxBins]binStats, third), used: make([][maxBins / 64]uint64, third),
		}
		drawn := make([]uint16, len(targets)) // how often each row was drawn
		for range drawn {
			drawn[g.random.IntN(len(drawn))]++
		}
		var members []sample
		total := binStats{}
		for row, times := range drawn {
			if times == 0 {
				continue
			}
			m := sample{row: uint32(row), weight: float32(times), sum: float64(times) * targets[row]}
			members = append(members, m)
			total.sum += m.sum
			total.weight += m.weight
		}
		g.grow(g.root(), members, total)
		return g.trees
	})}
}

// Predict returns the mean of the trees' values for a row. It allocates nothing.
func (f *Regression) Predict(row []float64) float64 {
	return f.sum(row) / float64(len(f.roots))
}

// ReadRegression reads what [Regression.Append] wrote, of so many columns.
func ReadRegression(r *artifact.Reader, columns int) *Regression {
	return &Regression{readTrees(r, columns, -math.MaxFloat32)}
}

// sample is a row in a tree's bootstrap sample.
type sample struct {
	row    uint32
	weight float32 // how often it was drawn
	sum    float64 // weight times target
}

func (m sample) target() float64 { return m.sum / float64(m.weight) }

// binStats sums up the members in one bin of a feature.
type binStats struct {
	sum    float64
	weight float32
	count  uint32 // distinct rows
}

// regressionGrower grows one tree.
type regressionGrower struct {
	grower

	bins    bins
	options RegressionOptions
	cells   [][maxBins]binStats    // for each feature tried
	used    [][maxBins / 64]uint64 // a bit for each cell that is not empty
}

// grow turns the node of some members into a leaf, or into a split with its subtrees.
func (g *regressionGrower) grow(at int, members []sample, total binStats) {
	best := g.choose(members, total)
	if best.feature < 0 {
		g.leaf(at, float32(g.leafValue(members, total)))
		return
	}
	left := 0
	for i, m := range members {
		if g.bins.rows[int(m.row)*g.columns+best.feature] <= best.bin {
			members[i], members[left] = members[left], m
			left++
		}
	}
	child := g.split(at, best.feature, g.bins.edges[best.feature][best.bin])
	g.grow(child, members[:left], best.left)
	g.grow(child+1, members[left:], binStats{sum: total.sum - best.left.sum, weight: total.weight - best.left.weight})
}

func (g *regressionGrower) leafValue(members []sample, total binStats) float64 {
	if !g.options.Median {
		return total.sum / float64(total.weight)
	}
	slices.SortFunc(members, func(a, b sample) int { return cmp.Compare(a.target(), b.target()) })
	half := total.weight / 2
	below := float32(0)
	for i, m := range members {
		below += m.weight
		if below > half {
			return m.target()
		}
		if below == half && i+1 < len(members) {
			return (m.target() + members[i+1].target()) / 2
		}
	}
	return members[len(members)-1].target()
}

// choice is a split; feature is -1 for none.
type choice struct {
	feature int
	bin     uint8
	gain    float64
	left    binStats
}

// choose tries a third of the features, drawn without replacement, and goes on beyond
// them only while none of those tried can split.
func (g *regressionGrower) choose(members []sample, total binStats) choice {
	best := choice{feature: -1}
	if len(members) < 2*g.options.Leaf {
		return best
	}
	whole := total.sum * total.sum / float64(total.weight)
	best.gain = whole + 1e-12*math.Abs(whole)
	for tried := 0; tried < g.columns && best.feature < 0; {
		features := g.order[tried:min(tried+len(g.cells), g.columns)]
		for i := range features {
			j := tried + i + g.random.IntN(g.columns-tried-i)
			g.order[tried+i], g.order[j] = g.order[j], g.order[tried+i]
		}
		tried += len(features)
		g.count(members, features)
		for i, feature := range features {
			g.best(&best, feature, &g.cells[i], &g.used[i], total, len(members))
		}
	}
	return best
}

// count sums up the members by bin, for all features in one pass, because a row's bins are adjacent in memory.
func (g *regressionGrower) count(members []sample, features []int) {
	cells, used := g.cells[:len(features)], g.used[:len(features)]
	for _, m := range members {
		row := g.bins.rows[int(m.row)*g.columns:][:g.columns]
		for i, feature := range features {
			bin := row[feature]
			used[i][bin/64] |= 1 << (bin % 64)
			c := &cells[i][bin]
			c.sum += m.sum
			c.weight += m.weight
			c.count++
		}
	}
}

// best finds the split of a feature that leaves the least squared error, and clears the cells.
func (g *regressionGrower) best(best *choice, feature int, cells *[maxBins]binStats, used *[maxBins / 64]uint64, total binStats, members int) {
	left := binStats{}
	for word, set := range used {
		for ; set != 0; set &= set - 1 {
			bin := word*64 + bits.TrailingZeros64(set)
			cell := cells[bin]
			cells[bin] = binStats{}
			left = binStats{left.sum + cell.sum, left.weight + cell.weight, left.count + cell.count}
			if int(left.count) < g.options.Leaf || members-int(left.count) < g.options.Leaf {
				continue
			}
			rest := total.sum - left.sum
			gain := left.sum*left.sum/float64(left.weight) + rest*rest/float64(total.weight-left.weight)
			if gain > best.gain {
				*best = choice{feature: feature, bin: uint8(bin), gain: gain, left: left} //nolint:gosec // below maxBins
			}
		}
		used[word] = 0
	}
}
