package outbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// TestFailingDisk appends while the disk fails in one way, lets it recover, and expects exactly what Append accepted,
// in order, both at once and after a restart, and each once. A disk that stays full lets the backlog go out.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail, recover func(*failing)
		want          error
	}{
		"full":          {func(d *failing) { d.space.Store(130) }, func(d *failing) { d.space.Store(1 << 30) }, syscall.ENOSPC},
		"full for good": {func(d *failing) { d.space.Store(0) }, func(*failing) {}, syscall.ENOSPC},
		"full and truncation fails": {
			func(d *failing) { d.space.Store(130); d.truncates.Store(true) },
			func(d *failing) { d.space.Store(1 << 30); d.truncates.Store(false) }, syscall.ENOSPC,
		},
		"sync fails": {func(d *failing) { d.syncs.Store(true) }, func(d *failing) { d.syncs.Store(false) }, syscall.EIO},
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
				must.Hold(t, errors.Is(fault, c.want), "appends on the failing disk: %v, want %v", fault, c.want)
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
				must.Hold(t, len(accepted) >= want,
					"only %d of %d appends on a healthy disk succeeded: %v", len(accepted), want, fault)
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
				must.Hold(t, next == len(accepted), "%d of %d accepted messages came out: %q", next, len(accepted), got)
				must.Do(t, box.Close())
				for _, m := range drain(t, open(t, dir, Options{Clock: time.Now, disk: hooked{hook: d.hook}}), 3) {
					must.Hold(t, !slices.Contains(got, m), "%q came a second time", m)
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
	must.Hold(t, len(got) >= count-lost && len(got) < count,
		"%d of %d messages came out, want all but about %d", len(got), count, lost)
	s := box.Stats()
	must.Hold(t, s.Pending == 0 && s.Damaged != 0, "%+v, want nothing waiting and the damage counted", s)
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
		must.Hold(t, len(got) == waiting+1 && got[waiting] == "after",
			"%d messages came out, want the %d that were counted and one more", len(got), waiting)
	})
}

// TestCardThatDies lets the disk become read-only under an open outbox and brings it
// back: what was kept can be taken out all the time, once.
func TestCardThatDies(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var dead atomic.Bool // as the kernel makes a file system with errors: read-only
			disk := hooked{hook: func(o operation, run func() error) error {
				if dead.Load() && (o.kind == "remove" || o.kind == "open" && o.flags != toRead) {
					return syscall.EROFS
				}
				return run()
			}}
			options := Options{Clock: time.Now, MaxBytes: 512 << 10, disk: disk}
			box := open(t, dir, options)
			add(t, box, numbered(0, 300)...)
			if restart {
				must.Do(t, box.Close())
			}
			dead.Store(true)
			if restart {
				box = open(t, dir, options)
			} else {
				box.mu.Lock()
				_ = box.active.Close() // an open file fails too
				box.mu.Unlock()
			}
			must.Hold(t, box.Append(rec("refused")) != nil, "a dead card takes a reading")
			taken := 0
			for taken <= 300 {
				messages := must.Get(box.Next(64))(t)
				if len(messages) == 0 {
					break
				}
				taken += len(messages)
				if err := box.Consume(messages); err != nil && !errors.Is(err, syscall.EROFS) {
					t.Fatal(err)
				}
			}
			got := box.Stats().Pending
			must.Hold(t, taken == 300 && got == 0, "%d of 300 come out, %d wait", taken, got)
			dead.Store(false)
			must.Do(t, box.Consume(nil)) // as an idle drain does: what a kill would leave now
			must.Equal(t, "consumed readings that would be sent a second time", 0, must.Get(Inspect(dir))(t).Pending)
			must.Do(t, box.Append(rec("again"))) // the card is back
			must.Equal(t, "messages out of a card that is back", 1, len(drain(t, box, 3)))
		})
	}
}

// TestFolderRemoved removes the folder under an open outbox: what is not on disk any more is not said to
// be kept, and what was kept and is gone is said.
func TestFolderRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := open(t, dir, options())
	add(t, box, numbered(0, 3)...)
	must.Do(t, os.RemoveAll(dir))
	for range 2 { // the file is open, a new one has no folder
		must.Fail(t, "append without a folder", box.Append(rec("lost")), os.ErrNotExist)
	}
	must.Fail(t, "state without a folder", box.Stats().Err, os.ErrNotExist)
	messages := must.Get(box.Next(3))(t)
	must.Equal(t, "what is left of three", Stats{Damaged: 1}, Stats{Pending: len(messages), Damaged: box.Stats().Damaged})
}

// swept counts what an outbox writes and syncs. The nth fails, or is done and reported as failed.
type swept struct {
	nth   int64
	lost  bool
	count atomic.Int64
}

func (d *swept) hook(o operation, run func() error) error {
	switch {
	case o.kind == "read at", o.kind == "open" && o.flags == toRead, d.count.Add(1) != d.nth:
		return run()
	case d.lost:
		return errors.Join(run(), syscall.EIO)
	default:
		return syscall.EIO
	}
}

// TestEveryDiskOperation lets each write, sync, truncation, creation and removal of a life of the outbox fail alone,
// and be done with its answer lost: start, messages over several segments, half of them sent, a restart, the rest. What
// was accepted comes out in order, and again only if it could not be noted as sent.
func TestEveryDiskOperation(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		steps := int64(1) // until a life has fewer
		for nth := int64(1); nth <= steps; nth++ {
			steps = max(nth, live(t, nth, lost))
		}
		must.Hold(t, steps >= 30, "a life has %d operations; the test needs more", steps)
		t.Logf("%d operations failed, lost %t", steps, lost)
	}
}

// live is a life of an outbox whose nth operation fails. It returns how many there were.
func live(t *testing.T, nth int64, lost bool) int64 {
	t.Helper()
	d := &swept{nth: nth, lost: lost}
	o := Options{MaxBytes: 1 << 20, Clock: time.Now, disk: hooked{hook: d.hook}} // segments of 64 KiB
	folder := t.TempDir()
	start := func() *Outbox {
		box, err := Open(folder, o)
		if err != nil { // the program starts again
			box, err = Open(folder, o)
		}
		must.Do(t, err)
		return box
	}
	var accepted, out []string
	unnoted := false // whether a message could not be noted as sent
	add := func(box *Outbox, from, to int) {
		for i := from; i < to; i++ {
			m := fmt.Sprintf("%02d %s", i, strings.Repeat("x", 20_000))
			err := box.Append(rec(m))
			if err != nil { // the node sends it again
				err = box.Append(rec(m))
			}
			must.Do(t, err)
			accepted = append(accepted, m)
		}
	}
	send := func(box *Outbox, all int) {
		for range all {
			messages := must.Get(box.Next(1))(t)
			for _, m := range messages {
				out = append(out, m.Enrolment)
			}
			if err := box.Consume(messages); err != nil {
				unnoted = true
			}
		}
	}
	box := start()
	add(box, 0, 8)
	send(box, 6)
	unnoted = box.Close() != nil || unnoted
	box = start()
	add(box, 8, 10)
	send(box, 30)
	left := box.Stats().Pending
	must.Hold(t, left == 0, "operation %d, lost %t: %d messages wait", nth, lost, left)
	_ = box.Close()
	once := slices.Clone(out)
	slices.Sort(once)
	once = slices.Compact(once)
	must.Equal(t, fmt.Sprintf("operation %d, lost %t: of %d messages %d came out", nth, lost, len(accepted), len(once)), accepted, once)
	// One whose append failed may have been written all the same.
	again := len(out) - len(once)
	must.Hold(t, again <= 1 || unnoted, "operation %d, lost %t: %d messages came a second time", nth, lost, again)
	return d.count.Load()
}

// childRound makes the test binary a child that appends to the outbox of its working
// folder until it is killed, and prints each message once it is durable.
const childRound = "OUTBOX_TEST_ROUND"

func TestMain(m *testing.M) {
	if round := os.Getenv(childRound); round != "" {
		fmt.Fprintln(os.Stderr, appendForEver(round))
		os.Exit(1) // and never on to the tests: they would start children again, without end
	}
	os.Exit(m.Run())
}

func appendForEver(round string) error {
	box, err := Open(".", Options{Clock: time.Now, MaxBytes: 4 << 20}) // of small segments
	if err != nil {
		return err
	}
	var mu sync.Mutex
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				m := fmt.Sprintf("%s/%d/%d/%s", round, w, i, strings.Repeat("x", i%3000))
				if err := box.Append(rec(m)); err != nil {
					failed <- err
				}
				mu.Lock()
				fmt.Println(m)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

// TestKill kills a process that appends, again and again, and looks for every
// message of which it had said that it is durable.
func TestKill(t *testing.T) {
	t.Parallel()
	program := must.Get(os.Executable())(t)
	dir := t.TempDir()
	said := map[string]bool{}
	for round := range 4 {
		child := exec.CommandContext(t.Context(), program)
		child.Dir, child.Env = dir, append(os.Environ(), fmt.Sprintf("%s=%d", childRound, round))
		child.Stderr = os.Stderr
		output := must.Get(child.StdoutPipe())(t)
		must.Do(t, child.Start())
		lines := bufio.NewReader(output)
		for i := 0; ; i++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // a half line was not said
			}
			said[strings.TrimSuffix(line, "\n")] = true
			if i == 100+37*round {
				must.Do(t, child.Process.Kill())
			}
		}
		_ = child.Wait()
	}
	box := open(t, dir, options())
	found := map[string]int{}
	for _, m := range drain(t, box, 64) {
		found[m]++
	}
	for m := range said {
		must.Equal(t, fmt.Sprintf("copies of message %.20q", m), 1, found[m])
	}
	must.Hold(t, len(said) >= 400, "only %d messages were durable before the kills", len(said))
	must.Equal(t, "torn tails count as damaged places", 0, box.Stats().Damaged)
}

// TestFilesRemoved removes the segments of an outbox without room: there is room again, without a restart.
func TestFilesRemoved(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), options()
	o.MaxBytes = 16 << 10
	box := open(t, dir, o)
	for n := range 1000 {
		_ = box.Append(rec(strconv.Itoa(n)))
	}
	for _, path := range must.Get(filepath.Glob(filepath.Join(dir, "*"+suffix)))(t) {
		must.Do(t, os.Remove(path))
	}
	must.Equal(t, "messages that are left", 0, len(must.Get(box.Next(1000))(t)))
	must.Do(t, box.Consume(nil))
	must.Fail(t, "append to a file that is removed", box.Append(rec("lost")), os.ErrNotExist)
	add(t, box, numbered(0, 40)...)
	must.Equal(t, "messages", numbered(0, 40), drain(t, box, 9))
}

// hooked is the real disk, each of whose operations goes through a function of the test's. run does what was asked.
type hooked struct {
	osDisk

	hook func(o operation, run func() error) error
}

// operation is what an outbox asks of its disk.
type operation struct {
	kind  string // open, remove, sync folder, write, write at, read at, sync or truncate
	path  string
	flags int // by which the file is, or was, opened
	file  file
	data  []byte // to be written, or read
	at    int64  // of data
}

func (d hooked) Open(path string, flags int) (file, error) {
	o := operation{kind: "open", path: path, flags: flags}
	err := d.hook(o, func() (err error) {
		o.file, err = d.osDisk.Open(path, flags)
		return err
	})
	if err != nil {
		return nil, err
	}
	return hookedFile{o.file, d, o}, nil
}

func (d hooked) Remove(path string) error {
	return d.hook(operation{kind: "remove", path: path}, func() error { return d.osDisk.Remove(path) })
}

func (d hooked) SyncFolder(path string) error {
	return d.hook(operation{kind: "sync folder", path: path}, func() error { return d.osDisk.SyncFolder(path) })
}

type hookedFile struct {
	file

	disk   hooked
	opened operation
}

func (f hookedFile) do(kind string, data []byte, at int64, run func() error) error {
	o := f.opened
	o.kind, o.data, o.at = kind, data, at
	return f.disk.hook(o, run)
}

func (f hookedFile) Write(b []byte) (n int, err error) {
	err = f.do("write", b, 0, func() error { n, err = f.file.Write(b); return err })
	return n, err
}

func (f hookedFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.do("write at", b, at, func() error { n, err = f.file.WriteAt(b, at); return err })
	return n, err
}

func (f hookedFile) ReadAt(b []byte, at int64) (n int, err error) {
	err = f.do("read at", b, at, func() error { n, err = f.file.ReadAt(b, at); return err })
	return n, err
}

func (f hookedFile) Sync() error { return f.do("sync", nil, 0, f.file.Sync) }

func (f hookedFile) Truncate(size int64) error {
	return f.do("truncate", nil, 0, func() error { return f.file.Truncate(size) })
}
