package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// TestInspect looks at an outbox while it is open, and after a power failure.
func TestInspect(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outbox")
	_, err := Inspect(dir)
	must.Fail(t, "Inspect of nothing", err, fs.ErrNotExist)
	box := open(t, dir, options())
	add(t, box, "first", "second", "third")
	take(t, box, 1)
	const record = recordSize
	inspect := func(want Stats) {
		t.Helper()
		before := files(t, dir)
		must.Equal(t, "contents", want, must.Get(Inspect(dir))(t))
		must.Equal(t, "looking changed the folder (-before +after)", before, files(t, dir))
	}
	size := int64(3*record + len("firstsecondthird"))
	add(t, box, "fourth")
	size += int64(record + len("fourth"))
	must.Do(t, box.Close())
	inspect(Stats{Pending: 3, Bytes: size})

	path := segments(t, dir)[0]
	content := must.Get(os.ReadFile(path))(t)
	content[record+len("first")+4] ^= 1 // within the second message's length
	must.Do(t, os.WriteFile(path, append(content, "half a record"...), 0o600))
	inspect(Stats{Pending: 2, Bytes: size + int64(len("half a record")), Damaged: 1})
}

// files is the content of every file of a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, entry := range entries {
		content := must.Get(os.ReadFile(filepath.Join(dir, entry.Name())))(t)
		found[entry.Name()] = string(content)
	}
	return found
}

func TestProbe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := open(t, dir, options())
	add(t, box, "kept")
	before := files(t, dir)
	must.Do(t, os.WriteFile(filepath.Join(dir, "probe271828"), make([]byte, blockSize), 0o600)) // of one that was killed
	took, err := Probe(dir, time.Now)
	must.Hold(t, err == nil && took > 0 && took <= time.Minute, "Probe = %s, %v", took, err)
	must.Equal(t, "the probe left something (-before +after)", before, files(t, dir))
	reads, now := 0, time.Time{}
	slowest := must.Get(Probe(dir, func() time.Time { // the second of the writes is slow
		if reads++; reads == 4 {
			now = now.Add(time.Second)
		}
		now = now.Add(time.Millisecond)
		return now
	}))(t)
	must.Equal(t, "the slowest write", time.Second+time.Millisecond, slowest)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	must.Do(t, os.WriteFile(elsewhere, nil, 0o600))
	must.Do(t, os.Symlink(elsewhere, filepath.Join(dir, "probe"))) // whoever may write here wants root to write there
	before = files(t, dir)
	var together sync.WaitGroup // a gateway and its doctor, again and again
	for range 4 {
		together.Go(func() {
			for range 15 {
				if _, err := Probe(dir, time.Now); err != nil {
					t.Errorf("beside others Probe = %v", err)
				}
			}
		})
	}
	together.Wait()
	must.Equal(t, "the probes left something, or wrote elsewhere (-before +after)", before, files(t, dir))
	must.Fail(t, "SyncFolder of no folder", (osDisk{}).SyncFolder(filepath.Join(dir, "none")), fs.ErrNotExist)
	_, err = Probe(filepath.Join(dir, "none"), time.Now)
	must.Contain(t, "the error of a probe of no folder", fmt.Sprint(err), "none")
}

// TestLate opens an outbox when its folder comes, as when a disk is mounted late.
func TestLate(t *testing.T) {
	t.Parallel()
	place := filepath.Join(t.TempDir(), "disk")
	must.Do(t, os.WriteFile(place, nil, 0o600)) // no folder can be made there
	now := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	attempts := 0
	openIt := func() (*Outbox, error) {
		attempts++
		return Open(filepath.Join(place, "outbox"), options())
	}
	box := NewLate(openIt, func() time.Time { return now })
	add := func(to *Late, text string) error { return to.AppendAll([]Record{rec(text)})[0] }
	if err := box.Open(); err == nil {
		t.Fatal("the outbox is open")
	}
	for range 5 {
		err := add(box, "refused")
		must.Hold(t, err != nil && box.Stats().Err != nil, "Append = %v, %+v", err, box.Stats())
		now = now.Add(5 * time.Second)
	}
	must.Equal(t, "attempts in 20 seconds", 3, attempts)
	now = now.Add(-24 * time.Hour)
	must.Equal(t, "attempts once the clock is set back", 4, func() int { _ = box.Stats(); return attempts }())
	must.Do(t, os.Remove(place))
	now = now.Add(time.Minute)
	must.Do(t, add(box, "kept"))
	messages := must.Get(box.Next(5))(t)
	must.Equal(t, "messages next and waiting", [2]int{1, 1}, [2]int{len(messages), box.Stats().Pending})
	must.Equal(t, "messages before and since", 1, len(slices.Collect(box.Before(messages[0], time.Hour)))+len(slices.Collect(box.Since(now.Add(-24*time.Hour)))))
	must.Do(t, box.Consume(messages))
	must.Equal(t, "messages wait", 0, box.Stats().Pending)
	must.Do(t, box.Close())
	must.Fail(t, "Append after Close", add(box, "late"), ErrClosed)
	unneeded := NewLate(openIt, time.Now)
	must.Do(t, unneeded.Close())
	must.Fail(t, "Append after Close, never opened", add(unneeded, "late"), ErrClosed)
}

// TestFolderPutBack takes the folder away under an open outbox and puts one in its place: what the outbox has said to
// be kept comes out, as does what the other folder has, and nothing else has to be done.
func TestFolderPutBack(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(dir, away string) error{
		"none, the outbox makes it": func(dir, _ string) error { return os.RemoveAll(dir) },
		"an empty one":              func(dir, _ string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"another one":               func(dir, away string) error { return errors.Join(os.RemoveAll(dir), os.Rename(away, dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, away := filepath.Join(t.TempDir(), "outbox"), filepath.Join(t.TempDir(), "away")
			before := open(t, away, options())
			add(t, before, "a", "b", "c")
			must.Equal(t, "messages consumed before", 1, len(take(t, before, 1)))
			must.Do(t, before.Close())
			now, missing := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC), error(nil)
			clock := func() time.Time { return now }
			var disk failing
			disk.space.Store(1 << 30)
			box := NewLate(func() (*Outbox, error) {
				if missing != nil {
					return nil, missing
				}
				return Open(dir, Options{Clock: clock, disk: hooked{hook: disk.hook}})
			}, clock)
			kept := numbered(0, 9)
			for _, text := range kept {
				must.Do(t, box.AppendAll([]Record{rec(text)})[0])
			}
			must.Do(t, box.Consume(must.Get(box.Next(4))(t)))
			stale := must.Get(box.Next(4))(t)
			must.Do(t, os.Rename(dir, dir+".moved"))
			missing = syscall.EACCES
			must.Fail(t, "append without a folder", box.AppendAll([]Record{rec("refused")})[0], missing)
			missing, now = nil, now.Add(reopenEvery)
			disk.space.Store(0)
			must.Fail(t, "append to a full disk", box.AppendAll([]Record{rec("refused")})[0], syscall.ENOSPC)
			disk.space.Store(1 << 30)
			for range 9 { // a write each, of a whole segment, would wear the card, and delay every reading
				must.Equal(t, "messages before the next try", 0, box.Stats().Pending)
			}
			now = now.Add(reopenEvery)
			must.Do(t, box.AppendAll([]Record{rec("in a new folder")})[0])
			must.Do(t, box.Consume(stale)) // of the folder that is gone
			must.Equal(t, "messages in the new folder", 6, box.Stats().Pending)
			must.Do(t, put(dir, away))
			var all []string
			for _, m := range must.Get(box.Next(99))(t) {
				all = append(all, m.Enrolment)
			}
			want := append(slices.Clone(kept[4:]), "in a new folder")
			if name == "another one" {
				want = append([]string{"b", "c"}, want...)
			}
			must.Equal(t, "messages", want, all)
			must.Do(t, box.Close())
			must.Equal(t, "messages of the folder that was moved, whose cursor was not due", 9, open(t, dir+".moved", options()).Stats().Pending)
		})
	}
}

// TestFolderGoesMeanwhile removes the folder while a record is synced, which is then refused, or while the first segment is
// opened to be read: what was kept before comes out all the same.
func TestFolderGoesMeanwhile(t *testing.T) {
	t.Parallel()
	for kind, act := range map[string]func(t *testing.T, box *Late){
		"sync": func(t *testing.T, box *Late) {
			t.Helper()
			must.Fail(t, "append while the folder goes", box.AppendAll([]Record{rec("refused")})[0], fs.ErrNotExist)
		},
		"open": func(t *testing.T, box *Late) { t.Helper(); must.Equal(t, "messages", 0, len(must.Get(box.Next(9))(t))) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, going := filepath.Join(t.TempDir(), "outbox"), false
			box := NewLate(func() (*Outbox, error) {
				return Open(dir, Options{Clock: time.Now, disk: hooked{hook: func(o operation, run func() error) error {
					if o.kind == kind && going {
						going = false
						must.Do(t, os.RemoveAll(dir))
					}
					return run()
				}}})
			}, time.Now)
			kept := numbered(0, 3)
			for _, text := range kept {
				must.Do(t, box.AppendAll([]Record{rec(text)})[0])
			}
			going = true
			act(t, box)
			var all []string
			for _, m := range must.Get(box.Next(9))(t) {
				all = append(all, m.Enrolment)
			}
			must.Equal(t, "messages", kept, all)
			must.Do(t, box.Close())
		})
	}
}
