package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"coldaisle.dev/run/tools/ml/labelled"
	"coldaisle.dev/shared/learn"
)

// load reads files one after the other. Nodes of the same name in two files are
// two nodes. Series that were recorded slowly are quickened, which it tells.
func load(paths []string, out io.Writer) (nodes []labelled.Series, quickened bool, err error) {
	for i, path := range paths {
		file, err := os.Open(path) //nolint:gosec // what the person named
		if err != nil {
			return nil, false, fmt.Errorf("series: %w", err)
		}
		found, skipped, err := labelled.Read(file)
		_ = file.Close()
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		rows := 0
		for j := range found {
			rows += len(found[j].Readings)
			if interval := found[j].Interval(); found[j].Quicken() {
				quickened = true
				_, _ = fmt.Fprintf(out, "%s: node %s has a reading every %v; judged as if it sent every 30s\n", path, found[j].ID, interval)
			}
			if len(paths) > 1 {
				found[j].ID = strconv.Itoa(i+1) + "." + found[j].ID
			}
		}
		_, _ = fmt.Fprintf(out, "%s: %d readings of %d nodes", path, rows, len(found))
		if skipped != (labelled.Skipped{}) {
			_, _ = fmt.Fprintf(out, "; left out: %d without a temperature, %d impossible, %d of an instant twice",
				skipped.Empty, skipped.Impossible, skipped.Twice)
		}
		_, _ = fmt.Fprintln(out)
		nodes = append(nodes, found...)
	}
	return nodes, quickened, nil
}

// historyOf is what training learns from.
func historyOf(nodes []labelled.Series) []learn.NodeHistory {
	history := make([]learn.NodeHistory, 0, len(nodes))
	for _, n := range nodes {
		history = append(history, learn.NodeHistory{NodeID: n.ID, Readings: n.Readings})
	}
	return history
}

// parse reads flags, of which at least so many files must follow.
func parse(flags *flag.FlagSet, arguments []string, files int) ([]string, error) {
	if err := flags.Parse(arguments); err != nil {
		return nil, fmt.Errorf("%s: %w", flags.Name(), err)
	}
	if flags.NArg() < files {
		return nil, fmt.Errorf("%s: name at least %d CSV file", flags.Name(), files)
	}
	return flags.Args(), nil
}

func simulate(arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	nodes := flags.Int("nodes", 52, "how many nodes")
	readings := flags.Int("readings", 2880, "of each node, one every 30 s: a day")
	seed := flags.Uint64("seed", 1, "another seed, another site")
	faults := flags.Bool("faults", true, "sow faults and label them")
	if _, err := parse(flags, arguments, 0); err != nil {
		return err
	}
	lines := csv.NewWriter(out)
	_ = lines.Write([]string{"node_id", "timestamp", "temperature", "humidity", "label"})
	for i, n := range labelled.Simulate(*nodes, *readings, *seed) {
		if *faults {
			n.Sow(*seed + uint64(i))
		}
		for j, r := range n.Readings {
			label := "0"
			if n.Labels != nil && n.Labels[j] {
				label = "1"
			}
			_ = lines.Write([]string{n.ID, r.Time.Format(time.RFC3339Nano), decimal(r.Temperature), decimal(r.Humidity), label})
		}
	}
	lines.Flush()
	if err := lines.Error(); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	return nil
}

// decimal writes a value as sensors send it; nothing for none.
func decimal(value float64) string {
	if math.IsNaN(value) {
		return ""
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}
