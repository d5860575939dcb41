package store_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

// TestProbe delivers readings of the probe: a steady stream in disorder and twice, and
// one that was late or came after a gap.
func TestProbe(t *testing.T) {
	t.Parallel()
	start := instant()
	type delivery struct{ published, received time.Duration }
	var steady []delivery
	for i := range 30 {
		d := delivery{time.Duration(i) * time.Minute, time.Duration(i)*time.Minute + time.Second}
		steady = append(steady, d, d)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(steady), func(i, j int) {
		if i/4 == j/4 {
			steady[i], steady[j] = steady[j], steady[i]
		}
	})
	for name, c := range map[string]struct {
		readings []delivery
		want     incident.Probe
	}{
		"none":   {},
		"steady": {steady, incident.Probe{Published: start.Add(29 * time.Minute)}},
		"received late": {
			[]delivery{{0, 0}, {time.Minute, 2*time.Minute + time.Second}, {2 * time.Minute, 2 * time.Minute}},
			incident.Probe{Published: start.Add(2 * time.Minute), LateAt: start.Add(2*time.Minute + time.Second)},
		},
		"after a gap": {
			[]delivery{{0, 0}, {3 * time.Minute, 3 * time.Minute}, {4 * time.Minute, 4 * time.Minute}},
			incident.Probe{Published: start.Add(4 * time.Minute), LateAt: start.Add(3 * time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for _, d := range c.readings {
				must.Do(t, db.RecordProbe(t.Context(), start.Add(d.published), start.Add(d.received)))
			}
			must.Equal(t, "probe", c.want, must.Get(db.Probe(t.Context()))(t))
		})
	}
}
