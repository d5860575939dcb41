package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// result is one benchmark's line.
type result struct {
	Package string
	Name    string // without Benchmark and the number of processors
	Metrics []metric
}

// metric is one value of a line, in the order in which it is written.
type metric struct {
	Unit  string
	Value float64
}

// value returns a metric by its unit.
func (r result) value(unit string) (float64, bool) {
	for _, m := range r.Metrics {
		if m.Unit == unit {
			return m.Value, true
		}
	}
	return 0, false
}

// benchmarks runs go test and copies its output to out. When packages fail it returns
// an error that names them, and the results of the others.
func benchmarks(ctx context.Context, out io.Writer, pattern string, lasting time.Duration, packages []string) ([]result, error) {
	arguments := append([]string{
		"test", "-run", "^$", "-bench", pattern, "-benchmem", "-benchtime", lasting.String(), "-timeout", "60m",
	}, packages...)
	command := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // the caller's packages
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("go test: %w", err)
	}
	command.Stderr = out
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("go test: %w", err)
	}
	results, failed := parse(io.TeeReader(output, out))
	if err := command.Wait(); err != nil {
		failed = errors.Join(failed, fmt.Errorf("go test: %w", err))
	}
	return results, failed
}

// parse reads the lines of go test -bench, with whatever units the benchmarks
// report. It skips lines that are no result: a benchmark may log anywhere.
func parse(output io.Reader) ([]result, error) {
	var results []result
	pkg, name := "", ""
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if found, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = found
			continue
		}
		fields := strings.Fields(line)
		if len(fields) > 0 && strings.HasPrefix(fields[0], "Benchmark") {
			name, fields = fields[0], fields[1:]
		}
		// A benchmark that logs has its figures on a later line of their own.
		metrics, ok := parseMetrics(fields)
		if !ok || name == "" {
			continue
		}
		results = append(results, result{Package: pkg, Name: benchmarkName(name), Metrics: metrics})
		name = ""
	}
	if err := lines.Err(); err != nil {
		return results, fmt.Errorf("read benchmarks: %w", err)
	}
	return results, nil
}

// parseMetrics reads the iterations and the pairs of value and unit.
func parseMetrics(fields []string) ([]metric, bool) {
	if len(fields) < 3 || len(fields)%2 == 0 {
		return nil, false
	}
	if _, err := strconv.Atoi(fields[0]); err != nil {
		return nil, false
	}
	var metrics []metric
	for i := 1; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return nil, false
		}
		metrics = append(metrics, metric{Unit: fields[i+1], Value: value})
	}
	return metrics, true
}

// benchmarkName removes the prefix Benchmark and the number of processors.
func benchmarkName(name string) string {
	name = strings.TrimPrefix(name, "Benchmark")
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		if _, err := strconv.Atoi(name[at+1:]); err == nil {
			name = name[:at]
		}
	}
	return strings.ReplaceAll(name, "_", " ")
}
