package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coldaisle.dev/shared/reading"
)

func TestRecordSurvivesTheDisk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := func(low, high float64) float64 {
			if value := rapid.Float64Range(low, high).Draw(t, "number"); rapid.Bool().Draw(t, "exact") {
				return value
			}
			return float64(rapid.IntRange(int(low)*100, int(high)*100).Draw(t, "hundredths")) / 100
		}
		micros := rapid.Int64Range(1e15, 4e15)
		want := Record{
			Reading: reading.Reading{
				NodeID:    rapid.StringMatching(`[a-z0-9:-]{1,50}`).Draw(t, "node"),
				MessageID: rapid.StringMatching(`[ -~]{1,64}`).Draw(t, "id"),
				Time:      time.UnixMicro(micros.Draw(t, "time")).UTC(), Temperature: number(-40, 125), Humidity: number(0, 100),
			},
			Enrolment: rapid.String().Draw(t, "enrolment"),
			Uptime:    time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "uptime")) * time.Microsecond,
		}
		copy(want.Boot[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "boot"))
		for range rapid.IntRange(0, 121).Draw(t, "earlier") {
			want.Earlier = append(want.Earlier, Earlier{
				Time:        time.UnixMicro(micros.Draw(t, "time")).UTC(),
				Temperature: rapid.Int16().Draw(t, "temperature"), Humidity: rapid.Int16().Draw(t, "humidity"),
			})
		}
		appended := time.UnixMicro(micros.Draw(t, "appended")).UTC()
		encoded := appendRecord([]byte("before"), want, appended)
		got, end, ok := record(encoded, int64(len("before")))
		if diff := cmp.Diff(want, got.Record); diff != "" || !ok || end != int64(len(encoded)) || got.Appended != appended {
			t.Fatalf("ok %t, ends at %d of %d, appended %s (-want +got):\n%s", ok, end, len(encoded), got.Appended, diff)
		}
	})
}

// FuzzBody holds that what is no record of ours is none, whatever its checksum.
func FuzzBody(f *testing.F) {
	f.Add(appendBody(nil, rec("text")))
	f.Add(appendBody(nil, Record{Earlier: make([]Earlier, 3)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, ok := decodeBody(body)
		if !ok {
			return
		}
		if err := r.Reading.Validate(); err != nil {
			t.Fatal(err)
		}
		again, ok := decodeBody(appendBody(nil, r))
		if diff := cmp.Diff(r, again); !ok || diff != "" {
			t.Fatalf("ok %t (-read +written and read):\n%s", ok, diff)
		}
	})
}

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

// fillUp has nodes append by turns until nothing more is kept, and returns how many
// records each has in it.
func fillUp(t *testing.T, box *Outbox, nodes int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	kept := map[string]int{}
	var next, refused atomic.Int64
	var appending sync.WaitGroup
	start := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	for range 256 {
		appending.Go(func() {
			for refused.Load() < int64(nodes) {
				i := int(next.Add(1))
				r := nodeRecord(i%nodes, i, start.Add(time.Duration(i)*30*time.Second/time.Duration(nodes)))
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
// OUTBOX_CAPACITY=268435456 it fills one of the default size.
func capacityBytes(t *testing.T) int64 {
	t.Helper()
	size := int64(2 << 20)
	if text := os.Getenv("OUTBOX_CAPACITY"); text != "" {
		if _, err := fmt.Sscan(text, &size); err != nil {
			t.Fatal(err)
		}
	}
	return size
}

// TestCapacity fills an outbox by 1,000 nodes: in proportion, one of the default size
// holds 1.5 million readings. Opened again it is ready before it has been read, each
// node has its share, and every reading comes out, in the order of its node.
func TestCapacity(t *testing.T) {
	t.Parallel()
	const nodes = 1000
	dir := t.TempDir()
	options := Options{Clock: time.Now, MaxBytes: capacityBytes(t)}
	box, err := Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	kept := fillUp(t, box, nodes)
	if got := int64(total(kept)) * (DefaultMaxBytes / options.MaxBytes); got < 1_500_000 {
		t.Errorf("%d readings in %d bytes: %d in an outbox of the default size", total(kept), options.MaxBytes, got)
	}
	if got := box.Stats().Bytes; got > options.MaxBytes {
		t.Errorf("%d bytes on disk, over %d", got, options.MaxBytes)
	}
	least, most := 1<<30, 0
	for _, n := range kept {
		least, most = min(least, n), max(most, n)
	}
	if len(kept) != nodes || least < most/2 {
		t.Errorf("%d nodes have from %d to %d readings in it", len(kept), least, most)
	}
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	counting := &countingDisk{}
	options.disk = counting
	began := time.Now()
	if box, err = Open(dir, options); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = box.Close() }()
	t.Logf("%d readings, opened in %s by reading %d bytes", total(kept), time.Since(began), counting.read.Load())
	if got := box.Stats().Pending; got != total(kept) {
		t.Errorf("%d readings wait, want %d", got, total(kept))
	}
	// The last segment is compressed now, which leaves a little room.
	for n := 0; ; n++ {
		r := nodeRecord(1, 1, time.Now())
		err := box.Append(r)
		if errors.Is(err, ErrFull) {
			break
		}
		if kept[r.Reading.NodeID]++; err != nil || n > total(kept)/10 {
			t.Fatalf("a full outbox that was opened again takes %d readings of a node: %v", n, err)
		}
	}
	last := map[string]time.Time{}
	for n := 0; ; {
		messages, err := box.Next(256)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			n++
			if m.Reading.Time.Before(last[m.Reading.NodeID].Add(-time.Minute)) { // 256 append at once
				t.Fatalf("%s: %s comes after %s", m.Reading.NodeID, m.Reading.Time, last[m.Reading.NodeID])
			}
			last[m.Reading.NodeID] = m.Reading.Time
			kept[m.Reading.NodeID]--
		}
		if err := box.Consume(messages); err != nil {
			t.Fatal(err)
		}
		if len(messages) == 0 {
			break
		}
	}
	for node, left := range kept {
		if left != 0 {
			t.Errorf("%d readings of %s are missing", left, node)
		}
	}
}

// countingDisk counts what is read.
type countingDisk struct {
	osDisk

	read atomic.Int64
}

func (d *countingDisk) Open(path string) (file, error) {
	f, err := d.osDisk.Open(path)
	if err != nil {
		return nil, err
	}
	return &countingFile{file: f, disk: d}, nil
}

type countingFile struct {
	file

	disk *countingDisk
}

func (f *countingFile) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.file.ReadAt(b, offset)
	f.disk.read.Add(int64(n))
	return n, err
}

// TestOpenReadsAPart opens an outbox of plain segments, as kills leave them, that are
// larger than what is read at once; what was estimated is known a little later.
func TestOpenReadsAPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const segments, each = 12, 6000
	encoded := make([]byte, 0, 1<<20)
	for i := range each {
		encoded = appendRecord(encoded, nodeRecord(i%100, i, time.Now().UTC()), time.Now())
	}
	for i := range segments {
		if err := os.WriteFile(segmentPath(dir, firstV2+uint64(i)+1, suffixPlain), encoded, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	disk := &countingDisk{}
	reads := make(chan struct{})
	held := &heldDisk{countingDisk: disk, release: reads}
	box, err := Open(dir, Options{Clock: time.Now, disk: held})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = box.Close() }()
	if n := disk.read.Load(); n > examinedAtOnce {
		t.Errorf("Open read %d bytes", n)
	}
	if got := box.Stats().Pending; got < segments*each/2 || got > segments*each*2 {
		t.Errorf("%d readings are estimated, there are %d", got, segments*each)
	}
	close(reads)
	deadline := time.Now().Add(time.Minute)
	for compressed := 0; compressed < segments; {
		if time.Now().After(deadline) {
			t.Fatalf("%d segments of %d are compressed", compressed, segments)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*"+suffixCompressed))
		if err != nil {
			t.Fatal(err)
		}
		compressed = len(found)
		time.Sleep(time.Millisecond)
	}
	if got := box.Stats().Pending; got != segments*each {
		t.Errorf("%d readings wait, want %d", got, segments*each)
	}
}

// heldDisk lets nobody read the ninth segment and further ones until it is released.
type heldDisk struct {
	*countingDisk

	release chan struct{}
}

func (d *heldDisk) Open(path string) (file, error) {
	if number, suffix := segmentNumber(filepath.Base(path)); suffix == suffixPlain && number > firstV2+8 {
		<-d.release
	}
	return d.countingDisk.Open(path)
}

// TestFairWhenFull has one node flood the outbox: it gets half of it, the others find
// room after it, and what was kept stays.
func TestFairWhenFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := Options{Clock: time.Now, MaxBytes: 48 << 10}
	box, err := Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	flood := func() (kept int) {
		for ; ; kept++ {
			if err := box.Append(nodeRecord(0, kept, time.Now())); errors.Is(err, ErrShare) {
				return kept
			} else if err != nil {
				t.Fatalf("after %d: %v", kept, err)
			}
		}
	}
	flooded := flood()
	if got := box.Stats(); got.Bytes < options.MaxBytes/3 || got.Bytes > options.MaxBytes*2/3 || got.Err != nil {
		t.Errorf("a single node takes %d of %d bytes; %v", got.Bytes, options.MaxBytes, got.Err)
	}
	if err := box.Close(); err != nil { // who holds what is known after a restart
		t.Fatal(err)
	}
	if box, err = Open(dir, options); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = box.Close() }()
	flooded += flood()
	for node := 1; node <= 10; node++ {
		for i := range 10 {
			if err := box.Append(nodeRecord(node, i, time.Now())); err != nil {
				t.Fatalf("reading %d of node %d: %v", i, node, err)
			}
		}
	}
	if more := flood(); more > flooded/4 {
		t.Errorf("the node got room for %d more while others came", more)
	}
	if got := box.Stats().Pending; got < flooded+100 {
		t.Errorf("%d readings wait, want %d", got, flooded+100)
	}
}

// TestInventedNodesShare holds that nodes beyond those that are counted share one
// node's part.
func TestInventedNodesShare(t *testing.T) {
	t.Parallel()
	var h holdings
	for i := range maxHolders + 5000 {
		h.add(strconv.Itoa(i), 1)
	}
	if len(h.nodes) > maxHolders+1 || h.total != maxHolders+5000 || h.of("another") != 5000 || h.of("7") != 1 {
		t.Errorf("%d are counted, %d in all, %d for a new one", len(h.nodes), h.total, h.of("another"))
	}
	for i := range maxHolders + 5000 {
		h.add(strconv.Itoa(i), -1)
	}
	if len(h.nodes) != 0 || h.total != 0 {
		t.Errorf("%v remain", h)
	}
}

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

// compressedBox makes an outbox whose one segment is compressed, and returns its file.
func compressedBox(t *testing.T, dir string, readings int) string {
	t.Helper()
	encoded := []byte(nil)
	for i := range readings {
		encoded = appendRecord(encoded, nodeRecord(i%10, i, time.Now().UTC()), time.Now())
	}
	plain := segmentPath(dir, firstV2+1, suffixPlain)
	if err := os.WriteFile(plain, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	box, err := Open(dir, Options{Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	box.compressSegments()
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(plain); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the plain segment: %v", err)
	}
	return segmentPath(dir, firstV2+1, suffixCompressed)
}

// TestDamagedCompressedSegment breaks a compressed segment of some blocks in every
// place, and counts what still comes out.
func TestDamagedCompressedSegment(t *testing.T) {
	t.Parallel()
	const readings = 3000
	perBlock := plainBlock / len(appendRecord(nil, nodeRecord(1, 1, time.Now()), time.Now()))
	for name, c := range map[string]struct {
		harm  func([]byte) []byte
		least int
	}{
		"nothing":           {func(b []byte) []byte { return b }, readings},
		"a block":           {func(b []byte) []byte { b[blockHeader+100] ^= 1; return b }, readings - perBlock - 2},
		"a block's length":  {func(b []byte) []byte { b[5] ^= 64; return b }, 0},
		"the index":         {func(b []byte) []byte { b[len(b)-trailerSize-3] ^= 1; return b }, readings},
		"the trailer":       {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, readings},
		"cut in the middle": {func(b []byte) []byte { return b[:len(b)/2] }, perBlock},
		"everything":        {func(b []byte) []byte { clear(b); return b }, 0},
		"nothing is left":   {func([]byte) []byte { return nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := compressedBox(t, dir, readings)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.harm(content), 0o600); err != nil {
				t.Fatal(err)
			}
			box, err := Open(dir, Options{Clock: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = box.Close() }()
			if err := box.Append(rec("after")); err != nil {
				t.Fatal(err)
			}
			got := all(t, box)
			if len(got) < c.least+1 || len(got) > readings+1 || got[len(got)-1] != "after" {
				t.Errorf("%d readings come out, want %d or more, and one after them", len(got)-1, c.least)
			}
			if s := box.Stats(); s.Pending != 0 {
				t.Errorf("%+v when all is consumed", s)
			}
		})
	}
}

// FuzzCompressed opens an outbox over a compressed segment of any content.
func FuzzCompressed(f *testing.F) {
	c := newCodec()
	defer c.close()
	data := appendRecord(nil, rec("text"), time.UnixMicro(1))
	f.Add(c.compress(data, &segment{records: 1, nodes: map[string]int{"n04": 1}}))
	f.Add([]byte(trailer))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(segmentPath(dir, firstV2+1, suffixCompressed), content, 0o600); err != nil {
			t.Fatal(err)
		}
		box, err := Open(dir, Options{Clock: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = box.Close() }()
		if err := box.Append(rec("after")); err != nil {
			t.Fatal(err)
		}
		if got := all(t, box); len(got) == 0 || got[len(got)-1] != "after" {
			t.Errorf("%q came out", got)
		}
	})
}

// TestInterruptedCompression leaves what a power failure leaves in each of its moments.
func TestInterruptedCompression(t *testing.T) {
	t.Parallel()
	const readings = 500
	for name, both := range map[string]bool{"before the rename": false, "before the removal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			compressed := compressedBox(t, dir, readings)
			packed, err := os.ReadFile(compressed)
			if err != nil {
				t.Fatal(err)
			}
			c := newCodec()
			defer c.close()
			f, err := osDisk{}.Open(compressed)
			if err != nil {
				t.Fatal(err)
			}
			data, err := c.decompress(f, 0)
			_ = f.Close()
			if err != nil {
				t.Fatal(err)
			}
			data = data[:strings.LastIndex(string(data), magicV2)+len(appendRecord(nil, nodeRecord(9, readings-1, time.Now().UTC()), time.Now()))]
			if err := os.WriteFile(segmentPath(dir, firstV2+1, suffixPlain), data, 0o600); err != nil {
				t.Fatal(err)
			}
			if !both {
				if err := errors.Join(os.WriteFile(compressed+suffixTemporary, packed[:len(packed)/2], 0o600), os.Remove(compressed)); err != nil {
					t.Fatal(err)
				}
			}
			box, err := Open(dir, Options{Clock: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(all(t, box)); got != readings {
				t.Errorf("%d readings come out, want %d", got, readings)
			}
			if err := box.Close(); err != nil { // when nothing is being compressed any more
				t.Error(err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*"+suffixTemporary)); len(left) > 0 {
				t.Errorf("%q remain", left)
			}
		})
	}
}

// deadCard is a disk that has become read-only, as the kernel does it to a file system
// with errors.
type deadCard struct {
	osDisk

	dead atomic.Bool
}

func (d *deadCard) Create(path string) (file, error) {
	if d.dead.Load() {
		return nil, syscall.EROFS
	}
	return d.osDisk.Create(path)
}

func (d *deadCard) Edit(path string) (file, error) {
	if d.dead.Load() {
		return nil, syscall.EROFS
	}
	return d.osDisk.Edit(path)
}

func (d *deadCard) Remove(path string) error {
	if d.dead.Load() {
		return syscall.EROFS
	}
	return d.osDisk.Remove(path)
}

// TestCardThatDies lets the disk become read-only under an open outbox and brings it
// back: what was kept can be taken out all the time, once.
func TestCardThatDies(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			disk := &deadCard{}
			options := Options{Clock: time.Now, MaxBytes: 64 << 10, disk: disk}
			box, err := Open(dir, options)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				if err := box.Append(rec(fmt.Sprint("before ", i))); err != nil {
					t.Fatal(err)
				}
			}
			if restart {
				if err := box.Close(); err != nil {
					t.Fatal(err)
				}
			}
			disk.dead.Store(true)
			if restart {
				if box, err = Open(dir, options); err != nil {
					t.Fatalf("open: %v", err)
				}
			} else {
				box.mu.Lock()
				_ = box.active.Close() // an open file fails too
				box.mu.Unlock()
			}
			if err := box.Append(rec("refused")); err == nil {
				t.Error("a dead card takes a reading")
			}
			taken := 0
			for {
				messages, err := box.Next(64)
				if err != nil {
					t.Fatal(err)
				}
				if len(messages) == 0 {
					break
				}
				taken += len(messages)
				if err := box.Consume(messages); err != nil && !errors.Is(err, syscall.EROFS) {
					t.Fatal(err)
				}
			}
			if got := box.Stats().Pending; taken != 300 || got != 0 {
				t.Errorf("%d of 300 come out, %d wait", taken, got)
			}
			disk.dead.Store(false)
			if err := box.Append(rec("again")); err != nil {
				t.Errorf("a card that is back: %v", err)
			}
			if got := all(t, box); len(got) != 1 {
				t.Errorf("%q come out of a card that is back", got)
			}
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
