package alerting

import (
	"context"
	"testing"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
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

// TestPreviewEndsWithItsRequest has nobody wait for the preview of a sensor any more.
func TestPreviewEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	p := previews{judging: map[string]judgedSensor{"n1": {room: 1, rules: []incident.Rule{{}}}}, node: reading.Node{ID: "n1"}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, "the preview", p.finish(ctx), context.Canceled)
}
