package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/labelled"
	"coldaisle.dev/run/tools/ml/trial"
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
	truth := flags.String("truth", "", "simulate rooms of six over weeks instead, and write what is wrong there into this CSV `file`")
	with := flags.String("with", "", "simulate rooms of six instead, with the faults of this CSV `file`")
	if _, err := parse(flags, arguments, 0); err != nil {
		return err
	}
	if *truth != "" || *with != "" {
		return simulateSite(*nodes, *readings, *seed, *with, *truth, out)
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

// simulateSite writes the readings of a site with the faults of a file or, without one,
// two of each ordinary kind per node and month, which it writes into the file truth.
func simulateSite(nodes, readings int, seed uint64, with, truth string, out io.Writer) (err error) {
	const perRoom = 6
	m := trial.Made{
		Site: site.Options{Seed: seed, Rooms: (nodes + perRoom - 1) / perRoom, PerRoom: perRoom, Interval: 30 * time.Second},
		Now:  time.Duration(readings) * 30 * time.Second, After: fault.Ordinary(),
	}
	if with != "" {
		m.After = nil
		if m.Faults, err = readFaults(with); err != nil {
			return err
		}
	}
	tracks, _ := m.Tracks()
	var faults []fault.Fault
	lines := csv.NewWriter(out)
	_ = lines.Write([]string{"node_id", "timestamp", "temperature", "humidity"})
	for _, t := range tracks {
		faults = append(faults, t.Events...)
		for _, r := range t.Readings {
			_ = lines.Write([]string{t.Node, r.Time.Format(time.RFC3339Nano), decimal(r.Temperature), decimal(r.Humidity)})
		}
	}
	lines.Flush()
	if err := lines.Error(); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	if truth == "" {
		return nil
	}
	file, err := os.Create(truth) //nolint:gosec // what the person named
	if err != nil {
		return fmt.Errorf("truth: %w", err)
	}
	return errors.Join(fault.Write(file, faults), file.Close())
}

func readFaults(path string) ([]fault.Fault, error) {
	file, err := os.Open(path) //nolint:gosec // what the person named
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	defer func() { _ = file.Close() }()
	faults, err := fault.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return faults, nil
}

// trueEvents replaces the events of tracks by those that a file tells of their nodes.
func trueEvents(tracks []trial.Track, path string) error {
	faults, err := readFaults(path)
	if err != nil {
		return err
	}
	for i := range tracks {
		tracks[i].Events = slices.DeleteFunc(slices.Clone(faults), func(f fault.Fault) bool { return f.Node != tracks[i].Node })
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
