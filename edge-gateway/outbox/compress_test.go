package outbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
