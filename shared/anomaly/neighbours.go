package anomaly

import (
	"cmp"
	"math"
	"slices"
)

// leastCorrelation is how alike a node of another room must be to be a neighbour.
const leastCorrelation = 0.3

// maxStrangers bounds how many nodes of other rooms are tried, the next ones in order:
// customers may have thousands.
const maxStrangers = 64

// slotsAlike is by how much of the past nodes are compared: two days.
const slotsAlike = 2 * slotsOfDay

// Placed is a node with its room and what it last measured, °C, in each slot of the
// last two days; NaN where nothing, and what is older does not count. The slots of all
// nodes are the same.
type Placed struct {
	Node, Room string
	Slots      []float32
}

// Neighbours chooses for each node the up to [MaxNeighbours] others whose changes in 30
// minutes correlate best with its own: those of its room first, of other rooms where
// the room has too few and they are alike. It is done once a day.
func Neighbours(nodes []Placed) [][]int {
	changes := make([][]float32, len(nodes))
	for i, n := range nodes {
		changes[i] = standardisedChanges(n.Slots[max(0, len(n.Slots)-slotsAlike):])
	}
	rooms := map[string][]int{}
	for i, n := range nodes {
		rooms[n.Room] = append(rooms[n.Room], i)
	}
	chosen := make([][]int, len(nodes))
	for i, n := range nodes {
		inside := best(i, rooms[n.Room], changes, -2, MaxNeighbours)
		if missing := MaxNeighbours - len(inside); missing > 0 {
			var strangers []int
			for step := 1; step < len(nodes) && len(strangers) < maxStrangers; step++ {
				if other := (i + step) % len(nodes); nodes[other].Room != n.Room {
					strangers = append(strangers, other)
				}
			}
			inside = append(inside, best(i, strangers, changes, leastCorrelation, missing)...)
		}
		chosen[i] = inside
	}
	return chosen
}

// best returns the candidates, at most so many, that correlate best with a node, and
// at least so well.
func best(of int, candidates []int, changes [][]float32, least float64, most int) []int {
	type candidate struct {
		node        int
		correlation float64
	}
	var found []candidate
	for _, other := range candidates {
		if other == of {
			continue
		}
		if c := correlation(changes[of], changes[other]); c >= least {
			found = append(found, candidate{other, c})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.correlation, a.correlation) })
	var nodes []int
	for _, c := range found[:min(len(found), most)] {
		nodes = append(nodes, c.node)
	}
	return nodes
}

// standardisedChanges are the changes over 30 minutes, less their mean, in standard
// deviations; 0 where one is not known.
func standardisedChanges(slots []float32) []float32 {
	const span = 3
	changes := make([]float32, len(slots))
	n, sum, squares := 0.0, 0.0, 0.0
	for i := span; i < len(slots); i++ {
		if d := float64(slots[i] - slots[i-span]); !math.IsNaN(d) {
			n++
			sum += d
			squares += float64(d * d)
		}
	}
	mean := sum / max(1, n)
	deviation := math.Sqrt(max(1e-12, squares/max(1, n)-float64(mean*mean)))
	for i := span; i < len(slots); i++ {
		if d := float64(slots[i] - slots[i-span]); !math.IsNaN(d) {
			// A fault of one of them must not decide: three deviations are enough.
			changes[i] = float32(max(-3, min(3, (d-mean)/deviation)))
		}
	}
	return changes
}

func correlation(a, b []float32) float64 {
	sum := 0.0
	for i := range min(len(a), len(b)) {
		sum += float64(float64(a[i]) * float64(b[i]))
	}
	return sum / max(1, float64(min(len(a), len(b))))
}
