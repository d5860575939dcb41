package announce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/tooltest"
)

// live lets time go by for sites on one link, from one moment at which something is due to the next.
func live(d time.Duration, lost func(letter) bool, sites ...*site) {
	for at, end := sites[0].now, sites[0].now.Add(d); at.Before(end); {
		exchange(sites, lost)
		at = end
		for _, s := range sites {
			at = s.next(at)
		}
		for _, s := range sites {
			s.pass(at.Sub(s.now))
		}
	}
}

// TestPairThroughFaults lets a pair live through thousands of faults: a parted link, lost messages, one
// that is killed, one that cannot send. Whoever is alone has the specified name within 5 seconds, and
// 30 seconds after the fault one has it and the other stands by.
func TestPairThroughFaults(t *testing.T) {
	t.Parallel()
	const runs = 4
	faults := 4000 / runs
	if n, err := strconv.Atoi(os.Getenv("PAIR_FAULTS")); err == nil { // at night
		faults = n / runs
	} else if tooltest.RaceDetector() {
		faults /= 10
	}
	for seed := range uint64(runs) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(seed, 8))
			first, second := pairUp(t)
			began := first.now
			for n := range faults {
				one, other := first, second
				if chance.IntN(2) == 0 {
					one, other = second, first
				}
				lasts := time.Duration(chance.Int64N(int64(time.Minute)))
				fault := []string{"parted", "lossy", "killed", "mute"}[chance.IntN(4)]
				alone := []*site{other}
				switch fault {
				case "parted":
					live(lasts, nil, one)
					live(lasts, nil, other)
					alone = append(alone, one)
				case "lossy":
					share := chance.Float64() / 2
					live(lasts, func(letter) bool { return chance.Float64() < share }, one, other)
					alone = nil
				case "killed":
					live(lasts, nil, other)
					one.responder.links, one.id, one.now, one.sent = map[int]*link{}, fmt.Sprintf("%016x", chance.Uint64()), other.now, nil
					one.update(one.now, one.links)
				case "mute":
					one.mute = true
					live(lasts, nil, one, other)
					one.mute = false
				}
				for _, s := range alone {
					if host := s.on(eth).Host; lasts > 5*time.Second && host != "monitor-gateway.local" {
						t.Fatalf("fault %d, %s for %v: who is alone is %s", n, fault, lasts, host)
					}
				}
				live(30*time.Second, nil, one, other)
				if got := roles(first, second); !slices.Equal(got, isPair[:]) {
					t.Fatalf("fault %d, %s for %v: 30 s later they are %q", n, fault, lasts, got)
				}
			}
			t.Logf("%d faults in %.0f hours", faults, first.now.Sub(began).Hours())
		})
	}
}
