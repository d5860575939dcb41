package incident_test

import (
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
)

// TestProbe shows when a node is blamed for its silence. Contract 5.9.
func TestProbe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe        incident.Probe
		newest       int // seconds
		now          int
		late, silent bool
	}{
		"never a probe":                   {incident.Probe{}, 0, 300, false, true},
		"in time":                         {incident.Probe{Published: after(250)}, 0, 300, false, true},
		"not silent yet":                  {incident.Probe{Published: after(250)}, 0, 299, false, false},
		"one is missing":                  {incident.Probe{Published: after(180)}, 0, 300, false, true},
		"late":                            {incident.Probe{Published: after(179)}, 0, 300, true, false},
		"late no more, which came late":   {incident.Probe{Published: after(590), LateAt: after(400)}, 0, 600, false, false},
		"silent since the service is on":  {incident.Probe{Published: after(690), LateAt: after(400)}, 0, 700, false, true},
		"newer than what was late":        {incident.Probe{Published: after(890), LateAt: after(400)}, 500, 799, false, false},
		"silent, and longer than it late": {incident.Probe{Published: after(790), LateAt: after(400)}, 500, 800, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must.Equal(t, "late", c.late, c.probe.Late(after(c.now)))
			must.Equal(t, "silent", c.silent, c.probe.Silent(after(c.newest), 30*time.Second, after(c.now)))
		})
	}
}
