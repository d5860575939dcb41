package outbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/reading"
)

// failing is a disk that runs full after so many bytes and breaks on demand.
type failing struct {
	osDisk

	space      atomic.Int64 // bytes that can still be written to segments
	syncs      atomic.Bool  // syncs fail
	truncates  atomic.Bool  // truncation fails
	folders    atomic.Bool  // syncs of folders fail
	unreadable atomic.Int64 // reads of this offset fail; 0 for none
}

func (d *failing) Create(path string) (file, error) {
	f, err := d.osDisk.Create(path)
	if err != nil {
		return nil, err
	}
	return &failingFile{file: f, disk: d}, nil
}

func (d *failing) Open(path string) (file, error) {
	f, err := d.osDisk.Open(path)
	if err != nil {
		return nil, err
	}
	return &failingFile{file: f, disk: d}, nil
}

func (d *failing) SyncFolder(path string) error {
	if d.folders.Load() {
		return syscall.EIO
	}
	return d.osDisk.SyncFolder(path)
}

type failingFile struct {
	file

	disk *failing
}

func (f *failingFile) Write(b []byte) (int, error) {
	left := f.disk.space.Add(-int64(len(b)))
	if left >= 0 {
		return f.file.Write(b)
	}
	part := max(0, len(b)+int(left))
	f.disk.space.Store(0)
	n, err := f.file.Write(b[:part])
	return n, errors.Join(err, syscall.ENOSPC)
}

func (f *failingFile) Sync() error {
	if f.disk.syncs.Load() {
		return syscall.EIO
	}
	return f.file.Sync()
}

func (f *failingFile) Truncate(size int64) error {
	if f.disk.truncates.Load() {
		return syscall.EIO
	}
	return f.file.Truncate(size)
}

func (f *failingFile) ReadAt(b []byte, offset int64) (int, error) {
	if bad := f.disk.unreadable.Load(); bad > 0 && offset <= bad && bad < offset+int64(len(b)) {
		return 0, syscall.EIO
	}
	return f.file.ReadAt(b, offset)
}

func openOn(t *testing.T, dir string, d *failing) *Outbox {
	t.Helper()
	box, err := Open(dir, Options{Clock: time.Now, disk: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })
	return box
}

// rec is a record that carries a text.
func rec(text string) Record {
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	return Record{Reading: reading.Reading{NodeID: fmt.Sprintf("n%02d", len(text)%50), MessageID: "1", Time: at, Temperature: 20, Humidity: 40}, Enrolment: text}
}

// all takes everything out of an outbox.
func all(t *testing.T, box *Outbox) []string {
	t.Helper()
	var found []string
	for {
		messages, err := box.Next(3)
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) == 0 {
			return found
		}
		for _, m := range messages {
			found = append(found, m.Enrolment)
		}
		if err := box.Consume(messages); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailingDisk appends while the disk fails in one way, lets it recover, and
// expects exactly what Append accepted, in order, both at once and after a
// restart.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fail, recover func(*failing)
		want          error
	}{
		"full": {
			func(d *failing) { d.space.Store(130) }, func(d *failing) { d.space.Store(1 << 30) }, syscall.ENOSPC,
		},
		"full and truncation fails": {
			func(d *failing) { d.space.Store(130); d.truncates.Store(true) },
			func(d *failing) { d.space.Store(1 << 30); d.truncates.Store(false) }, syscall.ENOSPC,
		},
		"sync fails": {
			func(d *failing) { d.syncs.Store(true) }, func(d *failing) { d.syncs.Store(false) }, syscall.EIO,
		},
		"no new segments": {
			func(d *failing) { d.space.Store(0); d.folders.Store(true) },
			func(d *failing) { d.space.Store(1 << 30); d.folders.Store(false) }, syscall.EIO,
		},
	}
	for name, c := range cases {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, restart), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				d := &failing{}
				d.space.Store(1 << 30)
				box := openOn(t, dir, d)
				var accepted []string
				var fault error
				step := func(i int) {
					m := fmt.Sprintf("message %02d of this test", i)
					if err := box.Append(rec(m)); err != nil {
						fault = err
						return
					}
					accepted = append(accepted, m)
				}
				for i := range 5 {
					step(i)
				}
				c.fail(d)
				for i := 5; i < 12; i++ {
					step(i)
				}
				if !errors.Is(fault, c.want) {
					t.Errorf("appends on the failing disk: %v, want %v", fault, c.want)
				}
				c.recover(d)
				if restart {
					if err := box.Close(); err != nil {
						t.Fatal(err)
					}
					box = openOn(t, dir, d)
				}
				for i := 12; i < 15; i++ {
					step(i)
				}
				if len(accepted) < 8 {
					t.Errorf("only %d of 8 appends on a healthy disk succeeded: %v", len(accepted), fault)
				}
				got := all(t, box)
				// A message whose write failed and could not be undone may come all the
				// same; none that was accepted may be missing or out of order.
				next := 0
				for _, m := range got {
					if next < len(accepted) && m == accepted[next] {
						next++
					} else if !restart {
						t.Errorf("%q was not accepted and yet came out", m)
					}
				}
				if next != len(accepted) {
					t.Errorf("%d of %d accepted messages came out: %q", next, len(accepted), got)
				}
			})
		}
	}
}

// TestFullDiskCanStillConsume lets the backlog go out, and the cursor move,
// while nothing can be appended.
func TestFullDiskCanStillConsume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &failing{}
	d.space.Store(1 << 20)
	box := openOn(t, dir, d)
	for range 10 {
		if err := box.Append(rec("kept")); err != nil {
			t.Fatal(err)
		}
	}
	d.space.Store(0)
	if err := box.Append(rec("refused")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Append = %v, want no space", err)
	}
	if got := all(t, box); len(got) != 10 {
		t.Errorf("%d messages came out, want 10", len(got))
	}
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	if got := all(t, openOn(t, dir, d)); len(got) != 0 {
		t.Errorf("%q came a second time", got)
	}
}

// TestUnreadableBlock steps over a block that the disk cannot read.
func TestUnreadableBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &failing{}
	d.space.Store(1 << 30)
	box := openOn(t, dir, d)
	const count, length = 300, 100
	for i := range count {
		if err := box.Append(rec(fmt.Sprintf("%0*d", length, i))); err != nil {
			t.Fatal(err)
		}
	}
	d.unreadable.Store(blockSize + 100)
	got := all(t, box)
	lost := blockSize/(headerSize+length) + 2
	if len(got) < count-lost || len(got) >= count {
		t.Errorf("%d of %d messages came out, want all but about %d", len(got), count, lost)
	}
	if s := box.Stats(); s.Pending != 0 || s.Damaged == 0 {
		t.Errorf("%+v, want nothing waiting and the damage counted", s)
	}
}

// FuzzSegment opens an outbox over a segment of any content.
func FuzzSegment(f *testing.F) {
	one := appendRecord(nil, rec("message"), time.UnixMicro(1))
	f.Add([]byte{})
	f.Add(one)
	f.Add(append(slices.Clip(one), one[:10]...))
	f.Add([]byte(magicV2 + magicV1 + "\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		made, err := osDisk{}.Create(filepath.Join(dir, filepath.Base(segmentPath(dir, firstV2+1, suffixPlain))))
		if err != nil {
			t.Fatal(err)
		}
		_, err = made.Write(content)
		if err = errors.Join(err, made.Close()); err != nil {
			t.Fatal(err)
		}
		box, err := Open(dir, Options{Clock: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = box.Close() }()
		waiting := box.Stats().Pending
		if err := box.Append(rec("after")); err != nil {
			t.Fatal(err)
		}
		got := all(t, box)
		if len(got) != waiting+1 || got[waiting] != "after" {
			t.Errorf("%d messages came out, want the %d that were counted and one more", len(got), waiting)
		}
	})
}

// TestShareWithoutCompressor has a node fill an outbox that the compressor has not come
// to: its share is that of the compressed outbox all the same.
func TestShareWithoutCompressor(t *testing.T) {
	t.Parallel()
	box, err := Open(t.TempDir(), Options{MaxBytes: 64 << 10, Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	close(box.compressWake)
	box.compressor.Wait()
	box.compressWake = nil
	for i := range 60 {
		if err := box.Append(rec(strings.Repeat("m", 1000))); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	box.compressWake = make(chan struct{}) // Close closes it
	if err := box.Close(); err != nil {
		t.Error(err)
	}
}
