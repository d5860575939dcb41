package keep_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"coldaisle.dev/edge-gateway/keep"
)

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path+".new", []byte("left over"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "two"} {
		if err := keep.File(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("the file holds %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is open to others: %v", info.Mode())
	}
	if err := keep.File(filepath.Join(path, "below"), nil); err == nil {
		t.Error("a file below a file can be written")
	}
}
