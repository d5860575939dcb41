package forest

import "math"

// interleave is the number of trees walked at the same time. A single walk waits for
// memory at every step; several keep the processor busy. Their variables are written out
// below, because an array of them would be kept in memory and not in registers.
const interleave = 4

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
		for range f.levels {
			node = nodes[node].step(row)
		}
		sum += paths[node]
	}
	return f.score(sum)
}

// ScoreAll scores every row.
func (f *Isolation) ScoreAll(rows Matrix) []float64 {
	scores := make([]float64, rows.Rows())
	parallelFor(len(scores), func(i int) { scores[i] = f.Score(rows.Row(i)) })
	return scores
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
	return math.Exp(-math.Ln2 * float64(sum) / float64(len(f.roots)) / normal)
}
