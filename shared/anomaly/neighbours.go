package anomaly

import (
	"cmp"
	"math"
	"slices"

	"coldaisle.dev/shared/reading"
)

// leastCorrelation is the least correlation of a neighbour from another room.
const leastCorrelation = 0.3

// maxOutside bounds the nodes of other rooms that are tried, the next ones in order, because
// customers may have thousands.
const maxOutside = 64

// slotsCompared is the length of the past by which nodes are compared: two days.
const slotsCompared = 2 * slotsOfDay

// Placed is a node's room and the node's last temperature, °C, in each slot of the last two
// days, NaN for none. The slots of all nodes are the same; older ones do not count.
type Placed struct {
	Room  string
	Slots []float32
}

// Temperatures returns the slots of a [Placed] from one slot until another, of readings from old to new.
func Temperatures(readings []reading.Reading, from, until int64) []float32 {
	slots := slices.Repeat([]float32{float32(math.NaN())}, int(max(0, until-from)))
	for _, r := range readings {
		if at := SlotOf(r.Time) - from; at >= 0 && at < int64(len(slots)) && reading.Has(r.Temperature) {
			slots[at] = float32(r.Temperature)
		}
	}
	return slots
}

// Neighbours chooses for each node the up to [MaxNeighbours] others whose changes in 30
// minutes correlate best with its own: those of its room first, of other rooms where
// the room has too few and they are alike. It is done once a day.
func Neighbours(nodes []Placed) [][]int {
	changes, rooms := make([][]float32, len(nodes)), map[string][]int{}
	for i, n := range nodes {
		changes[i] = standardisedChanges(n.Slots[max(0, len(n.Slots)-slotsCompared):])
		rooms[n.Room] = append(rooms[n.Room], i)
	}
	chosen := make([][]int, len(nodes))
	for i, n := range nodes {
		chosen[i] = best(i, rooms[n.Room], changes, -2, MaxNeighbours)
		if missing := MaxNeighbours - len(chosen[i]); missing > 0 {
			var outside []int
			for step := 1; step < len(nodes) && len(outside) < maxOutside; step++ {
				if other := (i + step) % len(nodes); nodes[other].Room != n.Room {
					outside = append(outside, other)
				}
			}
			chosen[i] = append(chosen[i], best(i, outside, changes, leastCorrelation, missing)...)
		}
	}
	return chosen
}

// best returns the candidates, at most most of them, that correlate best with a node, and with at least least.
func best(of int, candidates []int, changes [][]float32, least float64, most int) (found []int) {
	correlations := map[int]float64{}
	for _, other := range candidates {
		if other == of {
			continue
		}
		if by := correlation(changes[of], changes[other]); by >= least {
			correlations[other], found = by, append(found, other)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(correlations[b], correlations[a]) })
	return found[:min(len(found), most)]
}

// standardisedChanges are the changes over 30 minutes less their mean, in standard deviations; 0 if unknown.
func standardisedChanges(slots []float32) []float32 {
	const span = 3
	changes := make([]float32, len(slots))
	n, sum, squares := 0.0, 0.0, 0.0
	for i := span; i < len(slots); i++ {
		if d := float64(slots[i] - slots[i-span]); !math.IsNaN(d) {
			n++
			sum += d
			squares += d * d
		}
	}
	mean := sum / max(1, n)
	deviation := math.Sqrt(max(1e-12, squares/max(1, n)-mean*mean))
	for i := span; i < len(slots); i++ {
		if d := float64(slots[i] - slots[i-span]); !math.IsNaN(d) {
			// One faulty value must not decide: three deviations are enough.
			changes[i] = float32(max(-3, min(3, (d-mean)/deviation)))
		}
	}
	return changes
}

func correlation(a, b []float32) float64 {
	sum := 0.0
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum / max(1, float64(min(len(a), len(b))))
}
