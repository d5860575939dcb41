package forest

import (
	"math"

	"coldaisle.dev/shared/portable"
)

// interleave is the number of walks made at the same time, through one tree or of
// one row. A single walk waits for memory at every step; several keep the processor
// busy. Their variables are written out below, because an array of them would be
// kept in memory and not in registers.
const interleave = 4

// blockRows is how many rows go through all trees before the next do: their
// numbers stay in the nearest cache together with the tree at hand.
const blockRows = 128

// Score says how strange a row is, between 0 and 1: about 0.5 for an ordinary
// one, near 1 for one that a few splits isolate. It allocates nothing.
func (f *Isolation) Score(row []float64) float64 {
	row = row[:f.columns]
	nodes, paths := f.nodes, f.paths
	sum := float32(0)
	trees := f.roots
	for ; len(trees) >= interleave; trees = trees[interleave:] {
		a, b, c, d := trees[0], trees[1], trees[2], trees[3]
		for range f.levels {
			a = nodes[a].step(row)
			b = nodes[b].step(row)
			c = nodes[c].step(row)
			d = nodes[d].step(row)
		}
		sum += paths[a]
		sum += paths[b]
		sum += paths[c]
		sum += paths[d]
	}
	for _, node := range trees {
		sum += paths[f.leaf(node, row)]
	}
	return f.score(sum)
}

// ScoreAll scores every row, with so many goroutines, 0 for one per core. The
// result equals that of [Isolation.Score] bit for bit.
func (f *Isolation) ScoreAll(rows Matrix, workers int) []float64 {
	scores := make([]float64, rows.Rows())
	blocks := (len(scores) + blockRows - 1) / blockRows
	parallelFor(blocks, workers, func(_, block int) {
		first := block * blockRows
		last := min(first+blockRows, len(scores))
		f.scoreBlock(scores[first:last], rows.Data[first*rows.Columns:last*rows.Columns])
	})
	return scores
}

// scoreBlock adds up the paths of each row tree by tree, in the same order as
// Score does.
func (f *Isolation) scoreBlock(scores, data []float64) {
	var sums [blockRows]float32
	nodes, paths, columns := f.nodes, f.paths, f.columns
	for _, root := range f.roots {
		i, rest := 0, data
		for ; i+interleave <= len(scores); i += interleave {
			rowA, rowB := rest[:columns], rest[columns:2*columns]
			rowC, rowD := rest[2*columns:3*columns], rest[3*columns:4*columns]
			rest = rest[4*columns:]
			a, b, c, d := root, root, root, root
			for range f.levels {
				a = nodes[a].step(rowA)
				b = nodes[b].step(rowB)
				c = nodes[c].step(rowC)
				d = nodes[d].step(rowD)
			}
			sums[i] += paths[a]
			sums[i+1] += paths[b]
			sums[i+2] += paths[c]
			sums[i+3] += paths[d]
		}
		for ; i < len(scores); i++ {
			sums[i] += paths[f.leaf(root, rest[:columns])]
			rest = rest[columns:]
		}
	}
	for i := range scores {
		scores[i] = f.score(sums[i])
	}
}

// leaf is where a row ends from a root.
func (f *Isolation) leaf(node uint32, row []float64) uint32 {
	for range f.levels {
		node = f.nodes[node].step(row)
	}
	return node
}

// step goes one level down, or stays where it is at a leaf. The compiler makes
// no branch of the comparison, which would be guessed wrong every other time.
func (n *isolationNode) step(row []float64) uint32 {
	var above uint32
	if row[n.feature] > n.threshold {
		above = 1
	}
	return n.left + above
}

// score is 2^(-E(h)/c(ψ)) of the paper.
func (f *Isolation) score(sum float32) float64 {
	normal := averagePath(f.sample)
	if normal == 0 {
		return 0.5
	}
	return portable.Exp(-math.Ln2 * float64(sum) / float64(len(f.roots)) / normal)
}
