package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/shared/anomaly"
)

// nabDetector is the name under which the scorer of the Numenta Anomaly Benchmark finds
// the scores.
const nabDetector = "coldaisle"

// nab scores every file of the benchmark's folder data, such as
// data/realKnownCause/nyc_taxi.csv, into its folder results. Then, in that folder:
//
//	python run.py -d coldaisle --optimize --score --normalize --skipConfirmation
func nab(folder string, out io.Writer) error {
	windows, err := nabWindows(folder)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "data", "*", "*.csv"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no data/*/*.csv in %s: %w", folder, errors.Join(err, fs.ErrNotExist))
	}
	for _, path := range files {
		group, name := filepath.Base(filepath.Dir(path)), filepath.Base(path)
		target := filepath.Join(folder, "results", nabDetector, group)
		if err := os.MkdirAll(target, 0o755); err != nil { //nolint:gosec // readable by everybody on purpose
			return fmt.Errorf("results: %w", err)
		}
		if err := nabFile(path, filepath.Join(target, nabDetector+"_"+name), windows[group+"/"+name]); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, "%d files scored into %s\n", len(files), filepath.Join(folder, "results", nabDetector))
	return nil
}

// nabWindows are the spans of the labels, by file.
func nabWindows(folder string) (map[string][][2]string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "labels", "combined_windows.json")) //nolint:gosec // what the person named
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	var windows map[string][][2]string
	if err := json.Unmarshal(text, &windows); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	for name, spans := range windows {
		for i, span := range spans {
			for _, at := range span {
				if _, err := time.Parse(time.DateTime, at); err != nil {
					return nil, fmt.Errorf("labels: %s, window %d: %q is no time with seconds", name, i+1, at)
				}
			}
		}
	}
	return windows, nil
}

func nabFile(from, to string, windows [][2]string) error {
	text, err := os.ReadFile(from) //nolint:gosec // found in what the person named
	if err != nil {
		return fmt.Errorf("series: %w", err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if len(rows) == 0 || len(rows[0]) < 2 {
		return fmt.Errorf("%s: row 1: no columns timestamp and value", from)
	}
	scored := [][]string{{"timestamp", "value", "anomaly_score", "label"}}
	var n anomaly.Novelty
	for i, row := range rows[1:] {
		value, err := strconv.ParseFloat(row[1], 64)
		if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("%s: row %d: %q is no number", from, i+2, row[1])
		}
		// Times are written alike, and the windows' with a fraction: they compare as text.
		inside := slices.ContainsFunc(windows, func(w [2]string) bool { return w[0][:19] <= row[0] && row[0] <= w[1][:19] })
		label := "0"
		if inside {
			label = "1"
		}
		scored = append(scored, []string{row[0], row[1], strconv.FormatFloat(n.Add(value), 'g', -1, 64), label})
	}
	var b strings.Builder
	if err := csv.NewWriter(&b).WriteAll(scored); err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	if err := os.WriteFile(to, []byte(b.String()), 0o644); err != nil { //nolint:gosec // readable by everybody on purpose
		return fmt.Errorf("scores: %w", err)
	}
	return nil
}
