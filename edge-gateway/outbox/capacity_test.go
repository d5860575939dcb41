package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// node is a reading as a site's node sends it, which is taken at a time.
func nodeRecord(node, i int, at time.Time) Record {
	return Record{
		Reading: reading.Reading{
			NodeID: fmt.Sprintf("rack-%03d-esp32", node), MessageID: fmt.Sprintf("%08x", uint32(i)*2654435761), Time: at,
			Temperature: 20 + float64((i*7+node)%97)/10, Humidity: 40 + float64((i*13+node)%89)/10,
		},
		Boot: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Uptime: at.Sub(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)),
	}
}

// fillUp has nodes append, each one reading after the other, until nothing more is kept,
// and returns how many records each has in it. 250 nodes append at once.
func fillUp(t *testing.T, box *Outbox, nodes int) map[string]int {
	t.Helper()
	const appenders = 250
	var mu sync.Mutex
	kept := map[string]int{}
	var refused atomic.Int64
	start := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	for round := 0; refused.Load() < int64(nodes); round++ {
		var appending sync.WaitGroup
		for first := range appenders {
			appending.Go(func() {
				for node := first; node < nodes; node += appenders {
					r := nodeRecord(node, round*nodes+node, start.Add(time.Duration(round)*30*time.Second))
					err := box.Append(r)
					switch {
					case errors.Is(err, ErrFull):
						refused.Add(1)
					case err != nil:
						t.Error(err)
						return
					default:
						mu.Lock()
						kept[r.Reading.NodeID]++
						mu.Unlock()
					}
				}
			})
		}
		appending.Wait()
		if int64(total(kept))*recordSize > box.options.MaxBytes {
			t.Fatalf("%d readings are said to be kept in %d bytes", total(kept), box.options.MaxBytes)
		}
	}
	return kept
}

func total(kept map[string]int) int {
	n := 0
	for _, of := range kept {
		n += of
	}
	return n
}

// capacityBytes is the bound of the outbox that TestCapacity fills. With
// OUTBOX_CAPACITY=1073741824 it fills one of the default size.
func capacityBytes(t *testing.T) int64 {
	t.Helper()
	return must.Get(strconv.ParseInt(cmp.Or(os.Getenv("OUTBOX_CAPACITY"), "2097152"), 10, 64))(t)
}

// TestCapacity fills an outbox by 1,000 nodes: in proportion, one of the default size
// holds 8 million readings. Opened again it is ready before it has been read, each
// node has its share, and every reading comes out, in the order of its node.
func TestCapacity(t *testing.T) {
	t.Parallel()
	const nodes = 1000
	dir := t.TempDir()
	options := Options{Clock: time.Now, MaxBytes: capacityBytes(t)}
	box := open(t, dir, options)
	kept := fillUp(t, box, nodes)
	if got := int64(total(kept)) * (DefaultMaxBytes / options.MaxBytes); got < 8_000_000 {
		t.Errorf("%d readings in %d bytes: %d in an outbox of the default size", total(kept), options.MaxBytes, got)
	}
	got := box.Stats().Bytes
	must.Hold(t, got <= options.MaxBytes, "%d bytes on disk, over %d", got, options.MaxBytes)
	shares := slices.Sorted(maps.Values(kept))
	must.Hold(t, len(shares) == nodes && shares[0] >= shares[nodes-1]/2,
		"%d nodes have so many readings in it: %d", len(shares), shares)
	must.Do(t, box.Close())
	began := time.Now()
	box = open(t, dir, options)
	t.Logf("%d readings, opened in %s", total(kept), time.Since(began))
	must.Equal(t, "readings wait", total(kept), box.Stats().Pending)
	must.Fail(t, "a full outbox that was opened again", box.Append(nodeRecord(1, 1, time.Now())), ErrFull)
	last := map[string]time.Time{}
	for n, all := 0, total(kept); n <= all; {
		messages := must.Get(box.Next(256))(t)
		for _, m := range messages {
			n++
			if m.Reading.Time.Before(last[m.Reading.NodeID]) {
				t.Fatalf("%s: %s comes after %s", m.Reading.NodeID, m.Reading.Time, last[m.Reading.NodeID])
			}
			last[m.Reading.NodeID] = m.Reading.Time
			kept[m.Reading.NodeID]--
		}
		must.Do(t, box.Consume(messages))
		if len(messages) == 0 {
			break
		}
	}
	for node, left := range kept {
		must.Equal(t, fmt.Sprintf("readings of %s are missing", node), 0, left)
	}
}

// TestOpenReadsAPart opens an outbox that is larger than what is read at once; what was
// estimated is counted a little later.
func TestOpenReadsAPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const segments, each = 12, 6000
	encoded := make([]byte, 0, 1<<20)
	for i := range each {
		encoded = appendRecord(encoded, nodeRecord(i%100, i, time.Now().UTC()), time.Now())
	}
	for i := range segments {
		must.Do(t, os.WriteFile(segmentPath(dir, uint64(i)+1), encoded, 0o600))
	}
	release, read := make(chan struct{}), atomic.Int64{}
	box := open(t, dir, Options{Clock: time.Now, disk: hooked{hook: func(o operation, run func() error) error {
		if o.kind == "open" && segmentNumber(filepath.Base(o.path)) > 8 { // nobody reads these until they are released
			select {
			case <-release:
			case <-time.After(time.Minute): // only a read before its turn takes that long
				return errors.New("read before its turn")
			}
		}
		if o.kind == "read at" {
			read.Add(int64(len(o.data)))
		}
		return run()
	}}})
	n := read.Load()
	must.Hold(t, n <= examinedAtOnce, "Open read %d bytes", n)
	if got := box.Stats().Pending; got < segments*each/2 || got > segments*each*2 {
		t.Errorf("%d readings are estimated, there are %d", got, segments*each)
	}
	close(release)
	box.surveying.Wait()
	must.Equal(t, "readings wait", segments*each, box.Stats().Pending)
}

// TestFairWhenFull has one node flood the outbox: it gets half of it, the others find
// room after it, and what was kept stays.
func TestFairWhenFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := Options{Clock: time.Now, MaxBytes: 48 << 10}
	box := open(t, dir, options)
	flood := func() (kept int) {
		for ; kept < 1000; kept++ {
			if err := box.Append(nodeRecord(0, kept, time.Now())); errors.Is(err, ErrShare) {
				return kept
			} else if err != nil {
				t.Fatalf("after %d: %v", kept, err)
			}
		}
		t.Fatal("a node's share has no end")
		return 0
	}
	flooded := flood()
	if got := box.Stats(); got.Bytes < options.MaxBytes/3 || got.Bytes > options.MaxBytes*2/3 || got.Err != nil {
		t.Errorf("a single node takes %d of %d bytes; %v", got.Bytes, options.MaxBytes, got.Err)
	}
	must.Do(t, box.Close()) // who holds what is known after a restart
	box = open(t, dir, options)
	flooded += flood()
	for node := 1; node <= 10; node++ {
		for i := range 10 {
			must.Do(t, box.Append(nodeRecord(node, i, time.Now())))
		}
	}
	more := flood()
	must.Hold(t, more <= flooded/4, "the node got room for %d more while others came", more)
	got := box.Stats().Pending
	must.Hold(t, got >= flooded+100, "%d readings wait, want %d", got, flooded+100)
}

// TestInventedNodesShare holds that nodes beyond those that are counted share one node's part.
func TestInventedNodesShare(t *testing.T) {
	t.Parallel()
	var h holdings
	for i := range maxHolders + 5000 {
		h.add(strconv.Itoa(i), 1)
	}
	if len(h.nodes) > maxHolders+1 || h.total != maxHolders+5000 || h.of("another") != 5000 || h.of("7") != 1 {
		t.Errorf("%d are counted, %d in all, %d for a new one", len(h.nodes), h.total, h.of("another"))
	}
	h.add("8", -1)
	must.Equal(t, "held by a new one, beside one node fewer", 5000, h.of("another"))
	h.add("8", 1)
	for i := range maxHolders + 5000 {
		h.add(strconv.Itoa(i), -1)
	}
	must.Hold(t, len(h.nodes) == 0 && h.total == 0, "%v remain", h)
}

// TestConsumedWhileMoreIsWritten consumes everything that waits while another message is
// being written: that one stays counted. Uncounted ones made every node's share negative.
func TestConsumedWhileMoreIsWritten(t *testing.T) {
	t.Parallel()
	var during func()
	box := open(t, t.TempDir(), Options{Clock: time.Now, disk: hooked{hook: func(o operation, run func() error) error {
		if o.kind == "sync" && o.flags != toEdit && during != nil {
			during()
		}
		return run()
	}}})
	add(t, box, "first")
	during = func() { take(t, box, 1) }
	add(t, box, "second")
	must.Equal(t, "messages counted, where one waits", 1, box.held.total)
	during = nil
	if take(t, box, 1); box.held.total != 0 {
		t.Errorf("%d messages are counted, none waits", box.held.total)
	}
}
