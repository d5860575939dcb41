package store_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/store"
)

// over inserts an alert of n1 so many minutes after the test's instant.
func (db fixture) over(t *testing.T, of alert.Type, minutes, value float64) {
	t.Helper()
	e := hot("n1", strconv.FormatFloat(minutes, 'f', -1, 64))
	e.Type, e.Value, e.Time = of, value, minute(minutes)
	db.insert(t, e, store.AlertStored)
}

func minute(minutes float64) time.Time {
	return instant().Add(time.Duration(minutes * float64(time.Minute)))
}

func (db fixture) episodes(t *testing.T, customer int64, q store.EpisodeQuery) []store.Episode {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 50
	}
	found, err := db.Episodes(t.Context(), customer, q)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i].Start, found[i].End = found[i].Start.UTC(), found[i].End.UTC()
	}
	return found
}

func TestEpisodes(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	for _, m := range []float64{0, 5, 2.5} { // in the order of delivery, not of time
		db.over(t, alert.Temperature, m, 55+m)
	}
	db.over(t, alert.Humidity, 3, 61)
	db.over(t, alert.Temperature, 10.1, 52)

	early := store.Episode{
		SensorID: "n1", Type: "temperature", Start: minute(0), End: minute(5), Peak: 60, Threshold: 50, Alerts: 3, Unacknowledged: 3,
	}
	humid := store.Episode{
		SensorID: "n1", Type: "humidity", Start: minute(3), End: minute(3), Peak: 61, Threshold: 50, Alerts: 1, Unacknowledged: 1,
	}
	late := store.Episode{
		SensorID: "n1", Type: "temperature", Start: minute(10.1), End: minute(10.1), Peak: 52, Threshold: 50, Alerts: 1, Unacknowledged: 1,
	}
	for name, c := range map[string]struct {
		query store.EpisodeQuery
		want  []store.Episode
	}{
		"all":            {store.EpisodeQuery{}, []store.Episode{late, early, humid}},
		"active":         {store.EpisodeQuery{Active: true}, []store.Episode{late, early, humid}},
		"newest":         {store.EpisodeQuery{Limit: 1}, []store.Episode{late}},
		"from":           {store.EpisodeQuery{Start: minute(10.1)}, []store.Episode{late}},
		"until":          {store.EpisodeQuery{Start: minute(3), End: minute(5)}, []store.Episode{humid}},
		"another sensor": {store.EpisodeQuery{SensorID: "n2"}, []store.Episode{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, db.episodes(t, db.anna, c.query)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if found := db.episodes(t, db.bruno, store.EpisodeQuery{}); len(found) != 0 {
		t.Errorf("Bruno sees %+v", found)
	}
}

func TestAcknowledgeEpisode(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.over(t, alert.Temperature, 0, 55)
	db.over(t, alert.Temperature, 1, 57)
	db.over(t, alert.Humidity, 0.5, 61)
	seen := db.episodes(t, db.anna, store.EpisodeQuery{})
	db.over(t, alert.Temperature, 2, 56) // came since

	acknowledge := func(customer int64) (int, error) {
		return db.AcknowledgeEpisode(t.Context(), customer, "n1", "temperature", seen[0].Start, seen[0].End)
	}
	if seen[0].Type != "temperature" {
		t.Fatalf("%+v first", seen[0])
	}
	if _, err := acknowledge(db.bruno); !errors.Is(err, store.ErrNoAlert) {
		t.Errorf("Bruno: %v, want %v", err, store.ErrNoAlert)
	}
	for _, want := range []int{2, 0} {
		if got, err := acknowledge(db.anna); err != nil || got != want {
			t.Errorf("marked %d, %v, want %d", got, err, want)
		}
	}
	if _, err := db.AcknowledgeEpisode(t.Context(), db.anna, "n1", "temperature", minute(3), minute(9)); !errors.Is(err, store.ErrNoAlert) {
		t.Errorf("empty range: %v, want %v", err, store.ErrNoAlert)
	}
	// The episode goes on with one alert to see to, and still began when it began.
	active := db.episodes(t, db.anna, store.EpisodeQuery{Active: true})
	want := []store.Episode{
		{SensorID: "n1", Type: "temperature", Start: minute(0), End: minute(2), Peak: 57, Threshold: 50, Alerts: 3, Unacknowledged: 1},
		{SensorID: "n1", Type: "humidity", Start: minute(0.5), End: minute(0.5), Peak: 61, Threshold: 50, Alerts: 1, Unacknowledged: 1},
	}
	if diff := cmp.Diff(want, active); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
