package keep_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"coldaisle.dev/edge-gateway/keep"
	"coldaisle.dev/shared/must"
)

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(path+".new", []byte("left over"), 0o644))
	for _, content := range []string{"one", "two"} {
		must.Do(t, keep.File(path, []byte(content)))
		must.Equal(t, "the file holds", content, string(must.Get(os.ReadFile(path))(t)))
	}
	info := must.Get(os.Stat(path))(t)
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is open to others: %v", info.Mode())
	}
	if err := keep.File(filepath.Join(path, "below"), nil); err == nil {
		t.Error("a file below a file can be written")
	}
}
