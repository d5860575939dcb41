package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func options() Options { return Options{Clock: time.Now} }

func open(tb testing.TB, dir string, o Options) *Outbox {
	tb.Helper()
	box := must.Get(Open(dir, o))(tb)
	tb.Cleanup(func() { _ = box.Close() })
	return box
}

// Append appends one record.
func (o *Outbox) Append(r Record) error { return o.AppendAll([]Record{r})[0] }

func add(tb testing.TB, box *Outbox, messages ...string) {
	tb.Helper()
	for _, m := range messages {
		must.Do(tb, box.Append(rec(m)))
	}
}

func take(tb testing.TB, box *Outbox, n int) (texts []string) {
	tb.Helper()
	messages, err := box.Next(n)
	if err == nil {
		err = box.Consume(messages)
	}
	must.Do(tb, err)
	for _, m := range messages {
		texts = append(texts, m.Enrolment)
	}
	return texts
}

// drain takes out everything and returns it.
func drain(tb testing.TB, box *Outbox, step int) (all []string) {
	tb.Helper()
	for range 1000 {
		texts := take(tb, box, step)
		if len(texts) == 0 {
			return all
		}
		all = append(all, texts...)
	}
	tb.Fatal("messages come out without end")
	return nil
}

func numbered(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("message %d %s", i, strings.Repeat("x", i%700)))
	}
	return all
}

// recordSize is the size of a record beside its text of less than 128 bytes.
const recordSize = 64

// rec is a record that carries a text. Texts are spread over 50 nodes.
func rec(text string) Record {
	node := fmt.Sprintf("n%02d", crc32.ChecksumIEEE([]byte(text))%50)
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	return Record{Reading: reading.Reading{NodeID: node, MessageID: "1", Time: at, Temperature: 20, Humidity: 40}, Enrolment: text}
}

func segments(tb testing.TB, dir string) []string {
	tb.Helper()
	return must.Get(filepath.Glob(filepath.Join(dir, "*.seg")))(tb)
}

func TestOldestFirstAcrossSegmentsAndRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Clock: time.Now, MaxBytes: 1 << 20} // segments of 64 KiB
	want := numbered(0, 600)
	box := open(t, dir, o)
	add(t, box, want[:400]...)
	if len(segments(t, dir)) < 2 {
		t.Fatal("the messages are in one segment; the test needs several")
	}
	take(t, box, 150)
	must.Do(t, box.Close())

	box = open(t, dir, o)
	must.Equal(t, "messages wait after a restart", 250, box.Stats().Pending)
	add(t, box, want[400:]...)
	must.Equal(t, "", want[150:], drain(t, box, 7))
	must.Equal(t, "when all is consumed", Stats{Bytes: box.Stats().Bytes}, box.Stats())
}

func TestNextDoesNotTakeOut(t *testing.T) {
	t.Parallel()
	box := open(t, t.TempDir(), options())
	add(t, box, "a", "b", "c")
	must.Equal(t, "messages next", 2, len(must.Get(box.Next(2))(t)))
	messages := must.Get(box.Next(3))(t)
	must.Do(t, box.Consume(messages[:1]))
	must.Equal(t, "messages wait", 2, box.Stats().Pending)
	must.Equal(t, "", []string{"b", "c"}, drain(t, box, 5))
}

// ofNode is a record of a certain node.
func ofNode(node int, text string) Record {
	r := rec(text)
	r.Reading.NodeID = fmt.Sprintf("node-%d", node)
	return r
}

func TestBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const most = 32 << 10
	box := open(t, dir, Options{Clock: time.Now, MaxBytes: most})
	text := strings.Repeat("m", 1000)
	kept := 0
	for box.Append(ofNode(kept, text)) == nil && kept < 100 {
		kept++
	}
	must.Fail(t, "Append", box.Append(ofNode(kept, text)), ErrFull)
	size := must.Get(Size(dir))(t)
	must.Hold(t, size <= most && size >= most*9/10, "%d bytes on disk, want under %d and near it", size, most)
	// What is taken out makes room, and what had been promised is all there.
	must.Equal(t, "messages that come out, of those accepted", kept, len(drain(t, box, 3)))
	// The segment that is being written to still holds up to four of them.
	for i := range kept - 4 {
		must.Do(t, box.Append(ofNode(i, text)))
	}
	must.Equal(t, "messages come out of a full outbox", kept-4, len(drain(t, box, 3)))
}

// TestLastByte holds that a record which just fits is kept, and again once it was taken out, and that
// one which does not fit costs the card nothing.
func TestLastByte(t *testing.T) {
	t.Parallel()
	operations := 0
	counted := hooked{hook: func(_ operation, run func() error) error { operations++; return run() }}
	box := open(t, t.TempDir(), Options{Clock: time.Now, MaxBytes: recordSize + int64(len("whole")), disk: counted})
	add(t, box, "whole")
	take(t, box, 1)
	add(t, box, "whole")
	before := operations
	must.Fail(t, "Append to a full outbox", box.Append(rec("whole")), ErrFull)
	must.Equal(t, "operations of the disk for a record without room", 0, operations-before)
	must.Equal(t, "it writes", false, box.writing)

	dir := t.TempDir()
	full := strings.Repeat("m", minSegment-recordSize-1) // its length takes another byte
	add(t, open(t, dir, Options{Clock: time.Now, MaxBytes: 4 * minSegment}), full, full)
	must.Equal(t, "segments", 2, len(segments(t, dir)))
}

// TestManyAtOnce appends in one batch what would not fit: as much of it is kept as of the
// same records one by one, and each of the others has its own error.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]error{1: ErrShare, 100: ErrFull} {
		o := Options{Clock: time.Now, MaxBytes: 32 << 10}
		single, batch := open(t, t.TempDir(), o), open(t, t.TempDir(), o)
		records := []Record{{}} // not valid
		var one []error
		for i := range 100 {
			records = append(records, ofNode(i%nodes, strings.Repeat("m", 1000)))
		}
		for _, r := range records {
			one = append(one, single.Append(r))
		}
		all := batch.AppendAll(records)
		kept := 0
		for i, err := range all {
			if errors.Is(err, ErrFull) != errors.Is(one[i], ErrFull) || (err == nil) != (one[i] == nil) || errors.Is(err, ErrFull) && !errors.Is(err, want) {
				t.Errorf("record %d of %d nodes: %v, alone %v", i, nodes, err, one[i])
			}
			if err == nil {
				kept++
			}
		}
		must.Equal(t, "messages come out", kept, len(drain(t, batch, 7)))
		must.Equal(t, "messages counted", 0, batch.held.total)
		must.Hold(t, all[0] != nil && kept >= 10, "%d kept, an invalid one: %v", kept, all[0])
	}
}

// TestDamage breaks the one segment of an outbox in every way a disk can and looks which messages survive.
func TestDamage(t *testing.T) {
	t.Parallel()
	const record = recordSize + 10 // bytes
	all := []string{"message 0.", "message 1.", "message 2.", "message 3."}
	for name, c := range map[string]struct {
		harm    func([]byte) []byte
		want    []string
		damaged int // places that are counted
	}{
		"nothing":              {func(b []byte) []byte { return b }, all, 0},
		"torn in the last one": {func(b []byte) []byte { return b[:len(b)-3] }, all[:3], 0},
		"torn in its header":   {func(b []byte) []byte { return b[:3*record+5] }, all[:3], 0},
		"zeros behind the end": {func(b []byte) []byte { return append(b, make([]byte, 5000)...) }, all, 0},
		"a bit of a message":   {func(b []byte) []byte { b[record+25] ^= 4; return b }, []string{all[0], all[2], all[3]}, 1},
		"a bit of a length":    {func(b []byte) []byte { b[record+6] ^= 4; return b }, []string{all[0], all[2], all[3]}, 1},
		"a bit of a time":      {func(b []byte) []byte { b[record+9] ^= 4; return b }, []string{all[0], all[2], all[3]}, 1},
		"the first mark":       {func(b []byte) []byte { b[0] = 0; return b }, all[1:], 1},
		"a sector across two":  {func(b []byte) []byte { clear(b[record+12 : 2*record+4]); return b }, []string{all[0], all[3]}, 1},
		"everything":           {func(b []byte) []byte { clear(b); return b }, nil, 0},
		"cut to nothing":       {func([]byte) []byte { return nil }, nil, 0},
		"garbage with marks":   {func(b []byte) []byte { return append(bytes.Repeat([]byte("\xc0\x1d\xa2\xfe"), 40), b...) }, all, 1},
		"a byte in front":      {func(b []byte) []byte { return append([]byte{7}, b...) }, all, 1},
		"a half record in between": {
			func(b []byte) []byte { return append(append(b[:record+15:record+15], b[2*record:]...), b...) },
			[]string{all[0], all[2], all[3], all[0], all[1], all[2], all[3]},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			box := open(t, dir, options())
			add(t, box, all...)
			must.Do(t, box.Close())
			path := segments(t, dir)[0]
			content := must.Get(os.ReadFile(path))(t)
			must.Do(t, os.WriteFile(path, c.harm(content), 0o600))
			box = open(t, dir, options())
			must.Equal(t, "messages wait", len(c.want), box.Stats().Pending)
			add(t, box, "after")
			for range 3 { // as while Pub/Sub is unavailable: nothing is consumed
				must.Get(box.Next(2))(t)
			}
			must.Equal(t, "", append(slices.Clip(c.want), "after"), drain(t, box, 2))
			must.Equal(t, "damaged places are counted", c.damaged, box.Stats().Damaged)
		})
	}
}

// TestDamageWhileOpen lets a card lose a sector under a running gateway.
func TestDamageWhileOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := open(t, dir, options())
	add(t, box, "first", "second", "third")
	path := segments(t, dir)[0]
	content := must.Get(os.ReadFile(path))(t)
	clear(content[recordSize+len("first"):])
	must.Do(t, os.WriteFile(path, content, 0o600))
	must.Equal(t, "", []string{"first"}, drain(t, box, 1))
	must.Equal(t, "nothing waits, and the damage counts once", Stats{Bytes: box.Stats().Bytes, Damaged: 1}, box.Stats())
	add(t, box, "fourth")
	must.Equal(t, "", []string{"fourth"}, drain(t, box, 1))
}

// TestDamageGrows has a card lose another place before the one that the start has found.
func TestDamageGrows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := open(t, dir, options())
	add(t, box, "0", "1", "2", "3", "4")
	must.Do(t, box.Close())
	lose := func(i int) {
		path := segments(t, dir)[0]
		content := must.Get(os.ReadFile(path))(t)
		content[i*(recordSize+1)+25] ^= 4
		must.Do(t, os.WriteFile(path, content, 0o600))
	}
	lose(3)
	box = open(t, dir, options())
	must.Equal(t, "damaged places at the start", 1, box.Stats().Damaged)
	lose(1)
	must.Equal(t, "", []string{"0", "2", "4"}, drain(t, box, 1))
	must.Equal(t, "damaged places, each once", 2, box.Stats().Damaged)
}

func TestCursor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(path string) error
		want []string
	}{
		"kept":     {func(string) error { return nil }, []string{"c"}},
		"lost":     {os.Remove, []string{"a", "b", "c"}},
		"empty":    {func(p string) error { return os.WriteFile(p, nil, 0o600) }, []string{"a", "b", "c"}},
		"garbled":  {func(p string) error { return os.WriteFile(p, []byte("01234567890123456789"), 0o600) }, []string{"a", "b", "c"}},
		"all zero": {func(p string) error { return os.WriteFile(p, make([]byte, 20), 0o600) }, []string{"a", "b", "c"}},
	} {
		dir := t.TempDir()
		box := open(t, dir, options())
		add(t, box, "a", "b", "c")
		take(t, box, 2)
		must.Do(t, box.Close())
		must.Do(t, c.harm(filepath.Join(dir, "cursor")))
		must.Equal(t, name, c.want, drain(t, open(t, dir, options()), 9))
	}
}

// TestCursorSparesTheCard writes it once a second, by the drain's next attempt if need be.
func TestCursorSparesTheCard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		box := open(t, dir, options())
		add(t, box, "a", "b", "c", "d")
		wait := func(want int) {
			t.Helper()
			must.Equal(t, "messages wait by the cursor", want, must.Get(Inspect(dir))(t).Pending)
		}
		take(t, box, 1)
		wait(4)
		time.Sleep(cursorEvery)
		take(t, box, 0)
		wait(3)
		time.Sleep(cursorEvery - 1)
		take(t, box, 1)
		wait(3)
		time.Sleep(time.Nanosecond)
		take(t, box, 0)
		wait(2)
	})
}

// TestNumbersAreNotUsedTwice keeps a cursor from hiding messages of a later
// segment of the same number, once all segments have been removed, or the last one, whose messages a
// clock that was set back has made older than those before.
func TestNumbersAreNotUsedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 4 {
		box := open(t, dir, options())
		add(t, box, numbered(i, i+3)...)
		must.Equal(t, fmt.Sprintf("round %d", i), numbered(i, i+3), drain(t, box, 9))
		must.Do(t, box.Close())
	}
	dir = t.TempDir()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	o := Options{Clock: func() time.Time { return now }, Retain: time.Hour}
	for _, at := range []time.Duration{0, -2 * time.Hour, -30 * time.Minute, 0} {
		now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).Add(at)
		must.Do(t, open(t, dir, o).Close()) // it removes what need not be retained
		box := open(t, dir, o)
		add(t, box, at.String())
		must.Equal(t, "messages at "+now.String(), []string{at.String()}, drain(t, box, 9))
		must.Do(t, box.Close())
	}
}

func TestRetainedMessages(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	o := Options{Clock: func() time.Time { return now }, Retain: time.Hour, MaxBytes: 64 << 10}
	dir := t.TempDir()
	since := func(box *Outbox, start time.Time) int { return len(slices.Collect(box.Since(start))) }
	box := open(t, dir, o)
	add(t, box, "a", "b")
	now = now.Add(time.Minute)
	add(t, box, "c")
	messages := must.Get(box.Next(3))(t)
	for reach, want := range map[time.Duration]int{time.Minute - 1: 0, time.Minute: 2} {
		must.Equal(t, fmt.Sprintf("messages up to %s before the last", reach), want, len(slices.Collect(box.Before(messages[2], reach))))
	}
	must.Equal(t, "messages before the second", 1, len(slices.Collect(box.Before(messages[1], 0))))
	drain(t, box, 9)
	must.Do(t, box.Close())

	now = now.Add(58 * time.Minute)
	box = open(t, dir, o)
	must.Equal(t, "consumed messages are remembered after a restart", 3, since(box, now.Add(-time.Hour)))
	must.Equal(t, "messages of the last 58 minutes", 1, since(box, now.Add(-58*time.Minute)))
	must.Equal(t, "consumed messages that come again", 0, len(drain(t, box, 9)))
	for i := range 50 {
		add(t, box, strconv.Itoa(i)+strings.Repeat("m", 1000))
	}
	must.Equal(t, "messages remembered while there is room", 53, since(box, time.Time{}))
	drain(t, box, 9)
	for i := range 20 {
		add(t, box, strconv.Itoa(i)+strings.Repeat("m", 1000))
	}
	// Space that is needed is worth more than memory, and no more of it.
	got := since(box, time.Time{})
	must.Hold(t, got >= 55 && got <= 61, "%d messages are remembered, where 61 would fit", got)
	must.Do(t, box.Close())
	now = now.Add(time.Hour)
	box = open(t, dir, o)
	must.Equal(t, "messages come out", 20, len(drain(t, box, 9)))
	must.Do(t, box.Close())
	open(t, dir, o)
	must.Equal(t, "segments of an outbox that was consumed an hour ago", 0, len(segments(t, dir)))
}

// TestSinceWithoutTheTime holds that a gateway whose machine has lost the time reads no more of a
// long backlog, at its start, than one that knows it.
func TestSinceWithoutTheTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	o := Options{Clock: func() time.Time { return now }, Retain: time.Hour}
	dir := t.TempDir()
	for _, id := range []string{"a", "b", "c"} {
		box := open(t, dir, o)
		add(t, box, id)
		must.Do(t, box.Close())
		now = now.Add(40 * time.Minute)
	}
	now = time.Unix(0, 0)
	for wait := 3; wait < 5; wait++ { // and again, once it has appended without the time
		box := open(t, dir, o)
		var found []string
		for m := range box.Since(now.Add(-time.Hour)) {
			found = append(found, m.Enrolment)
		}
		must.Equal(t, "messages of the last hour", []string{"b", "c"}, found)
		must.Equal(t, "messages that wait", wait, box.Stats().Pending)
		add(t, box, "d")
		must.Do(t, box.Close())
	}
}

func TestOneProcessAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := open(t, dir, options())
	_, err := Open(dir, options())
	must.Fail(t, "a second Open", err, ErrInUse)
	must.Do(t, box.Close())
	must.Fail(t, "Append after Close", box.Append(rec("late")), ErrClosed)
	must.Do(t, box.Close()) // a second time
}

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
		short := slices.Clip(encoded[len("before") : len(encoded)-1])
		_, _, whole := record(short, 0)
		if _, ok = decodeBody(short[headerSize:]); ok || whole {
			t.Fatal("a record without its last byte is one")
		}
	})
}

// TestNumbersAreShort holds that a number with two decimals takes a few bytes, and each keeps its bits.
func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for value, size := range map[float64]int{0: 1, math.Copysign(0, -1): 9, 20.5: 2, -40: 2, 1.0 / 3: 9} {
		encoded := appendNumber(nil, value)
		got := (&bodyReader{rest: encoded}).number()
		must.Hold(t, len(encoded) == size && math.Float64bits(got) == math.Float64bits(value),
			"%g takes %d bytes, want %d, and is read as %g", value, len(encoded), size, got)
	}
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
		must.Do(t, validate(r.Reading))
		written := appendBody(nil, r)
		again, ok := decodeBody(written)
		if diff := cmp.Diff(written, appendBody(nil, again)); !ok || diff != "" {
			t.Fatalf("ok %t (-written +read and written again):\n%s", ok, diff)
		}
	})
}
