package alerting

import (
	"testing"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store/incidents"
)

// TestStepsOf shows that only excursions that join one after another are one step.
func TestStepsOf(t *testing.T) {
	t.Parallel()
	var changes []incidents.Change
	for _, e := range []incident.Event{
		incident.EventStarted, incident.EventJoined, incident.EventWorse, incident.EventWorse, incident.EventJoined, incident.EventJoined, incident.EventJoined,
		incident.EventCommented, incident.EventJoined,
	} {
		changes = append(changes, incidents.Change{Event: e})
	}
	var events []string
	var times []int
	for _, s := range stepsOf(changes) {
		events, times = append(events, s.Event), append(times, s.Times)
	}
	must.Equal(t, "events", []string{"started", "joined", "worse", "worse", "joined", "commented", "joined"}, events)
	must.Equal(t, "times", []int{1, 1, 1, 1, 3, 1, 1}, times)
}
