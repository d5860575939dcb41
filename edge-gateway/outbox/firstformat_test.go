package outbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/reading"
)

// TestFirstFormat opens an outbox that a gateway of version 1 of the format has
// written, with half a record at its end, and goes on with it. testdata/v1 was written
// by that program: 24 readings of two nodes, of which 5 are consumed.
func TestFirstFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 3, 10, 0, 0, time.UTC)
	options := Options{Clock: func() time.Time { return now }, Retain: time.Hour, MaxBytes: 64 << 10}
	box, err := Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	if got := box.Stats(); got.Pending != 19 || got.Damaged != 0 {
		t.Errorf("%+v, want 19 waiting", got)
	}
	if err := box.Append(rec("after")); err != nil {
		t.Fatal(err)
	}
	messages, err := box.Next(4)
	if err != nil || len(messages) != 4 {
		t.Fatalf("%v, %v", messages, err)
	}
	if err := box.Consume(messages); err != nil {
		t.Fatal(err)
	}
	if n := len(listOf(box.Since(now.Add(-time.Hour)))); n != 25 {
		t.Errorf("%d readings of the last hour, want 25", n)
	}
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	// An older program takes over: it knows nothing of what is new, and adds to what
	// it knows.
	content, err := os.ReadFile("testdata/v1/0000000000000001.log")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "0000000000000003.log"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if box, err = Open(dir, options); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = box.Close() }()
	start := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	i := 9
	for {
		messages, err := box.Next(7)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.Enrolment == "after" {
				i = -1
				continue
			}
			if i == 24 {
				i = 0 // what the older program added
			}
			want := reading.Reading{
				NodeID: fmt.Sprintf("node-%d", i%2), MessageID: fmt.Sprintf("%08x", i), Time: start.Add(time.Duration(i+1) * 15 * time.Second),
				Temperature: 21 + float64(i)/10, Humidity: 41.125,
			}
			if diff := cmp.Diff(want, m.Reading); diff != "" || m.Recent.Len() != min(i/2+3, 8) {
				t.Fatalf("window of %d (-want +got):\n%s", m.Recent.Len(), diff)
			}
			i++
		}
		if err := box.Consume(messages); err != nil {
			t.Fatal(err)
		}
		if len(messages) == 0 {
			break
		}
	}
	if i != -1 {
		t.Error("the new reading does not come last")
	}
	if got := box.Stats(); got.Pending != 0 || got.Damaged != 0 {
		t.Errorf("%+v when all is consumed", got)
	}
}

func listOf(messages func(func(Message) bool)) (all []Message) {
	for m := range messages {
		all = append(all, m)
	}
	return all
}
