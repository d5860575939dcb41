package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

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
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := file.Write(files[name]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return packed.Bytes(), nil
}
