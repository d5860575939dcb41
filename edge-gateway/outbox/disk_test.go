package outbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// failing is a disk that runs full after so many bytes and breaks on demand.
type failing struct {
	space      atomic.Int64 // bytes that can still be written to segments
	syncs      atomic.Bool  // syncs of segments fail
	truncates  atomic.Bool  // truncation fails
	folders    atomic.Bool  // syncs of folders fail
	unreadable atomic.Int64 // reads of this offset fail; 0 for none
}

func (d *failing) hook(o operation, run func() error) error {
	bad := d.unreadable.Load()
	switch {
	case o.kind == "sync folder" && d.folders.Load(), o.kind == "truncate" && d.truncates.Load(),
		o.kind == "sync" && o.flags != toEdit && d.syncs.Load(),
		o.kind == "read at" && bad > 0 && o.at <= bad && bad < o.at+int64(len(o.data)):
		return syscall.EIO
	case o.kind == "write":
		left := d.space.Add(-int64(len(o.data)))
		if left >= 0 {
			return run()
		}
		d.space.Store(0)
		_, err := o.file.Write(o.data[:max(0, len(o.data)+int(left))])
		return errors.Join(err, syscall.ENOSPC)
	}
	return run()
}

// TestFailingDisk appends while the disk fails in one way, lets it recover, and
// expects exactly what Append accepted, in order, both at once and after a
// restart, and each once. A disk that stays full lets the backlog go out.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail, recover func(*failing)
		want          error
	}{
		"full": {
			func(d *failing) { d.space.Store(130) }, func(d *failing) { d.space.Store(1 << 30) }, syscall.ENOSPC,
		},
		"full for good": {
			func(d *failing) { d.space.Store(0) }, func(*failing) {}, syscall.ENOSPC,
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
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, restart), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				d := &failing{}
				d.space.Store(1 << 30)
				box := open(t, dir, Options{Clock: time.Now, disk: hooked{hook: d.hook}})
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
					must.Do(t, box.Close())
					box = open(t, dir, Options{Clock: time.Now, disk: hooked{hook: d.hook}})
				}
				for i := 12; i < 15; i++ {
					step(i)
				}
				want := 5
				if d.space.Load() > 0 {
					want += 3
				}
				if len(accepted) < want {
					t.Errorf("only %d of %d appends on a healthy disk succeeded: %v", len(accepted), want, fault)
				}
				must.Equal(t, "messages counted", box.Stats().Pending, box.held.total)
				must.Equal(t, "segments counted", len(segments(t, dir)), len(box.segments))
				// Of a write that could not be undone as much may have stayed as was written.
				if size, counted := must.Get(Size(dir))(t), box.Stats().Bytes; size > counted || size < counted && !strings.Contains(name, "truncation") {
					t.Errorf("%d bytes counted, %d on disk", counted, size)
				}
				got := drain(t, box, 3)
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
				must.Do(t, box.Close())
				for _, m := range drain(t, open(t, dir, Options{Clock: time.Now, disk: hooked{hook: d.hook}}), 3) {
					if slices.Contains(got, m) {
						t.Errorf("%q came a second time", m)
					}
				}
			})
		}
	}
}

// TestUnreadableBlock steps over a block that the disk cannot read.
func TestUnreadableBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &failing{}
	d.space.Store(1 << 30)
	box := open(t, dir, Options{Clock: time.Now, disk: hooked{hook: d.hook}})
	const count, length = 300, 100
	for i := range count {
		add(t, box, fmt.Sprintf("%0*d", length, i))
		if i == 50 {
			must.Get(box.Next(1))(t) // what is read by then is not read again
		}
	}
	d.unreadable.Store(150 * (recordSize + length))
	got := drain(t, box, 3)
	lost := blockSize/(recordSize+length) + 2
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
	f.Add([]byte(magic + magic + "\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(segmentPath(dir, 1), content, 0o600))
		box := open(t, dir, options())
		waiting := box.Stats().Pending
		add(t, box, "after")
		got := drain(t, box, 3)
		if len(got) != waiting+1 || got[waiting] != "after" {
			t.Errorf("%d messages came out, want the %d that were counted and one more", len(got), waiting)
		}
	})
}
