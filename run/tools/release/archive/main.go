// Command archive assembles what is deployed of each function: one zip with the
// function's package at its root and the packages that it imports.
//
//	go run ./run/tools/release/archive -out dist/functions
//
// Google's buildpack takes the one package at the root of an archive for the
// function. So entrypoint/function.go stands there, beside a go.mod and go.sum of
// its own; every other package has its real path, without tests and without what
// the function does not import. The buildpack generates a main that serves what was
// registered only where that one package imports the Functions Framework's package
// functions itself: every entrypoint does. Equal sources give equal bytes: a
// function whose archive is unchanged is not deployed again.
package main

import (
	"archive/zip"
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	out := flag.String("out", filepath.Join("dist", "functions"), "folder for the archives, NAME.zip each")
	flag.Parse()
	config.Main("archive", func(ctx context.Context) error { return run(ctx, ".", *out) })
}

// run writes the archive of every function below root into the folder out.
func run(ctx context.Context, root, out string) error {
	names, err := functionNames(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o750); err != nil {
		return fmt.Errorf("folder of the archives: %w", err)
	}
	for _, name := range names {
		files, err := assemble(ctx, root, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		archive, err := pack(files)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		path := filepath.Join(out, name+".zip")
		if err := os.WriteFile(path, archive, 0o600); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %d files, %d bytes\n", path, len(files), len(archive))
	}
	return nil
}

// pack writes files into a zip whose bytes depend on nothing but their names and
// contents: sorted, of one time and mode, and not compressed, which another
// version of Go would do differently.
func pack(files map[string][]byte) ([]byte, error) {
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(0o644)
		file, err := archive.CreateHeader(header)
		if err == nil {
			_, err = file.Write(files[name])
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return packed.Bytes(), nil
}
