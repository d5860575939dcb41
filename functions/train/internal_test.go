package train

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

// TestReadingsTogetherAreBounded holds that nodes that send often are read in smaller parts, and
// that each has its hours: each has 120 readings, and 300 are read at a time.
func TestReadingsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	nodes := make([]learning.PlacedNode, 5)
	for i := range nodes {
		nodes[i] = learning.PlacedNode{NodeRef: readings.NodeRef{ID: fmt.Sprint("n", i)}, RoomID: 1}
	}
	table := &busyTable{each: 120}
	step := &Train{readings: table}
	saved := 0
	save := func(dayHours) error { saved++; return nil }
	hours := must.Get(step.readHours(t.Context(), nil, nodes, start, 300, save))(t)
	var heard []string
	for _, n := range hours {
		if n.Node != "" && slices.ContainsFunc(n.Hours, func(h anomaly.Hour) bool { return !h.Silent() }) {
			heard = append(heard, n.Node)
		}
	}
	must.Equal(t, "nodes with hours", []string{"n0", "n1", "n2", "n3", "n4"}, heard)
	must.Equal(t, "nodes of each part, with which it grows again", []int{5, 2, 3, 2, 1}, table.parts)
	must.Equal(t, "saved, but for the last part", 2, saved)

	// A node that has more by itself is cut.
	table.parts = nil
	must.Get(step.readHours(t.Context(), nil, nodes[:2], start, 100, save))(t)
	must.Equal(t, "nodes of each part", []int{2, 1, 1}, table.parts)
}

// roundTrip is a function as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDayIsReadByDeliveries has a day of which each delivery reads a part until its time is over, at the worst
// moment: when what was kept before is deleted.
func TestDayIsReadByDeliveries(t *testing.T) {
	t.Parallel()
	server := must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Writer: io.Discard}))(t)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "models"})
	end := func() {}
	bucket := must.Get(modelstore.Open(t.Context(), "models", option.WithEndpoint(server.URL()+"/storage/v1/"),
		option.WithHTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			answer, err := http.DefaultTransport.RoundTrip(r)
			if r.Method == http.MethodDelete {
				end()
			}
			return answer, err
		})})))(t)
	t.Cleanup(func() { _ = bucket.Close() })
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	nodes := make([]learning.PlacedNode, 2*maxTogether+1)
	for i := range nodes {
		nodes[i] = learning.PlacedNode{NodeRef: readings.NodeRef{ID: fmt.Sprint("n", i)}, RoomID: int64(1 + i/700)}
	}
	table := &busyTable{each: 1}
	step := &Train{readings: table, models: bucket}
	for _, table.fails = range []int{2, 4} {
		delivery, over := context.WithCancel(t.Context())
		end = over
		must.Fail(t, "a delivery whose time is over", must.Err(step.hoursOf(delivery, 1, nodes, start)), context.DeadlineExceeded)
		over()
	}
	got := must.Get(step.hoursOf(t.Context(), 1, nodes, start))(t)
	must.Equal(t, "nodes of each part", []int{maxTogether, maxTogether, maxTogether, 1, 1}, table.parts)
	want := must.Get(step.readHours(t.Context(), nil, nodes, start, maxReadings, func(dayHours) error { return nil }))(t)
	same := bytes.Equal(must.Get(want.MarshalBinary())(t), must.Get(got.MarshalBinary())(t))
	must.Hold(t, same, "%d nodes and rooms, want the hours of %d read at once", len(got), len(want))
}

// busyTable is a table with so many readings of each node.
type busyTable struct {
	Readings

	each  int
	parts []int // nodes that were asked for at a time
	fails int   // how many parts there are when it fails; 0 is never
}

func (b *busyTable) Ranges(_ context.Context, nodes []readings.NodeRef, _, end time.Time) iter.Seq2[reading.Reading, error] {
	b.parts = append(b.parts, len(nodes))
	return func(yield func(reading.Reading, error) bool) {
		if len(b.parts) == b.fails {
			yield(reading.Reading{}, context.DeadlineExceeded)
			return
		}
		for _, n := range nodes {
			for i := range b.each {
				r := reading.Reading{NodeID: n.ID, MessageID: "m", Time: end.Add(time.Duration(i-b.each) * 30 * time.Second), Temperature: 20, Humidity: 40}
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// TestClaimIsRenewed holds that a trainer at work keeps its run however long it takes, and learns when it has lost it.
func TestClaimIsRenewed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	runs := learning.New(store.New(pool))
	var run int64
	must.Do(t, pool.QueryRow(t.Context(), `INSERT INTO model_training_runs (triggered_by) VALUES ('manual') RETURNING id`).Scan(&run))
	claim := must.Get(runs.ClaimRun(t.Context(), run))(t)
	set := func(change string) {
		t.Helper()
		must.Get(pool.Exec(t.Context(), "UPDATE model_training_runs SET "+change))(t)
	}
	set("claimed_at = now() - interval '1 hour'")
	held, release := renewClaim(t.Context(), runs, claim, 5*time.Millisecond)
	must.Eventually(t, "the claim is renewed", func() (fresh bool) {
		must.Do(t, pool.QueryRow(t.Context(), "SELECT claimed_at > now() - interval '1 minute' FROM model_training_runs").Scan(&fresh))
		return fresh
	})
	must.Do(t, context.Cause(held))
	set("attempts = attempts + 1") // as another's claim
	must.Eventually(t, "a claim that is lost ends", func() bool { return held.Err() != nil })
	must.Fail(t, "a claim that is lost", context.Cause(held), store.ErrRunEnded)
	release()

	held, release = renewClaim(t.Context(), runs, claim, time.Hour)
	release()
	must.Fail(t, "released", context.Cause(held), context.Canceled)
}
