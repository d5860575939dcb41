package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"

	"coldaisle.dev/shared/child"
)

// downloadDir is the folder of a downloaded server, beside its data.
const downloadDir = "download"

// findBinaries returns the folder with postgres and initdb of the major version that made
// the data, or of the newest version if there is no data yet. It fails with [ErrNone] only
// if any version would do.
func findBinaries(ctx context.Context, downloaded, major string) (string, error) {
	var found []installation
	for _, folder := range append(binaryFolders(), downloaded) {
		if i, ok := probeVersion(ctx, folder); ok {
			found = append(found, i)
		}
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("look for PostgreSQL: %w", err)
	}
	if major == "" && len(found) == 0 {
		return "", ErrNone
	}
	if major == "" {
		newest := slices.MaxFunc(found, func(a, b installation) int { return cmp.Compare(a.major, b.major) })
		return newest.folder, nil
	}
	for _, i := range found {
		if strconv.Itoa(i.major) == major {
			return i.folder, nil
		}
	}
	return "", fmt.Errorf("the data was made by PostgreSQL %[1]s, which is not installed: install it (Debian: apt-get install postgresql-%[1]s), "+
		"or convert the data as docs/one-machine.md describes", major)
}

type installation struct {
	folder string
	major  int
}

// binaryFolders are the places where packages put the server.
func binaryFolders() []string {
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// The path is often a link, and initdb looks for postgres beside the real file.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	} {
		matches, err := filepath.Glob(pattern)
		if err == nil {
			folders = append(folders, matches...)
		}
	}
	return folders
}

// probeVersion asks a folder's server for its version.
func probeVersion(ctx context.Context, folder string) (installation, bool) {
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return installation{}, false
	}
	output, err := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version").Output() //nolint:gosec // a known name in a known folder
	if err != nil {
		return installation{}, false
	}
	fields := strings.Fields(string(output)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(fields) < 3 {
		return installation{}, false
	}
	number, _, _ := strings.Cut(fields[2], ".")
	major, err := strconv.Atoi(number)
	return installation{folder: folder, major: major}, err == nil
}

// download downloads a server with embedded-postgres, which also starts it once, because
// the library cannot do the one without the other. Only the binaries are kept.
func download(ctx context.Context, dir string, log *slog.Logger) (string, error) {
	runtimeDir := filepath.Join(dir, downloadDir)
	log.InfoContext(ctx, "no PostgreSQL installed, downloading one")
	port, err := child.Port(ctx)
	if err != nil {
		return "", err
	}
	server := embedded.NewDatabase(embedded.DefaultConfig().
		BinariesPath(runtimeDir).RuntimePath(filepath.Join(dir, "download-runtime")).
		Port(uint32(port)). //nolint:gosec // a port
		Logger(nil))
	if err := server.Start(); err != nil {
		return "", fmt.Errorf("%w (a download failed: %w)", ErrNone, err)
	}
	if err := server.Stop(); err != nil {
		return "", fmt.Errorf("stop downloaded PostgreSQL: %w", err)
	}
	return filepath.Join(runtimeDir, "bin"), nil
}
