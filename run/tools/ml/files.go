package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/learn"
)

// load reads files one after the other. Nodes of the same name in two files are
// two nodes. It tells which are too slow for the forest.
func load(paths []string, out io.Writer) (tracks []trial.Track, err error) {
	for i, path := range paths {
		file, err := os.Open(path) //nolint:gosec // what the person named
		if err != nil {
			return nil, fmt.Errorf("series: %w", err)
		}
		var text io.Reader = file
		if strings.HasSuffix(path, ".gz") {
			text, err = gzip.NewReader(file)
		}
		var found []trial.Track
		var skipped int
		if err == nil {
			found, skipped, err = trial.ReadTracks(text)
		}
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rows := 0
		for j := range found {
			rows += len(found[j].Readings)
			if found[j].Slow() {
				_, _ = fmt.Fprintf(out, "%s: node %s has a reading every %v: the forest judges it as if it sent every 30s\n",
					path, found[j].Node, found[j].Interval())
			}
			if len(paths) > 1 {
				found[j].Node = strconv.Itoa(i+1) + "." + found[j].Node
			}
		}
		_, _ = fmt.Fprintf(out, "%s: %d readings of %d nodes", path, rows, len(found))
		if skipped > 0 {
			_, _ = fmt.Fprintf(out, "; %d rows without a temperature, impossible, or of an instant twice", skipped)
		}
		_, _ = fmt.Fprintln(out)
		tracks = append(tracks, found...)
	}
	return tracks, nil
}

// historyOf is what training learns from.
func historyOf(tracks []trial.Track) []learn.NodeHistory {
	history := make([]learn.NodeHistory, 0, len(tracks))
	for _, t := range tracks {
		history = append(history, learn.NodeHistory{NodeID: t.Node, Readings: t.Readings})
	}
	return history
}

// parse reads a command's flags.
func parse(flags *flag.FlagSet, arguments []string) error {
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("%s: %w", flags.Name(), err)
	}
	return nil
}

// simulate writes the readings of a site in which some nodes have faults.
func simulate(arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	nodes := flags.Int("nodes", 52, "how many nodes, in rooms of six, of a laboratory of 13")
	readings := flags.Int("readings", 2880, "of each node, one every 30 s: a day")
	seed := flags.Uint64("seed", 1, "another seed, another site")
	laboratory := flags.Bool("laboratory", false, "a restless laboratory from a Thursday on, without faults, instead of machine rooms")
	with := flags.String("with", "", "the faults of this CSV `file`, instead of two of each ordinary kind per node and month")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if *nodes < 1 || *readings < 1 {
		return fmt.Errorf("simulate: -nodes %d, -readings %d: at least 1 of each", *nodes, *readings)
	}
	m := made(*nodes, *readings, *seed, *laboratory)
	if *with != "" {
		m.After = nil
		content, err := os.ReadFile(*with) //nolint:gosec // what the person named
		if err == nil {
			m.Faults, err = fault.Read(bytes.NewReader(content))
		}
		if err != nil {
			return fmt.Errorf("faults in %s: %w", *with, err)
		}
	}
	tracks, _ := m.Tracks()
	lines := csv.NewWriter(out)
	_ = lines.Write([]string{"node_id", "timestamp", "temperature", "humidity", "label", "room"})
	for _, t := range tracks[:*nodes] {
		for _, r := range t.Readings {
			label := "0"
			if slices.ContainsFunc(t.Events, func(f fault.Fault) bool { return f.Affects(r.Time) }) {
				label = "1"
			}
			_ = lines.Write([]string{t.Node, r.Time.Format(time.RFC3339Nano), decimal(r.Temperature), decimal(r.Humidity), label, t.Room})
		}
	}
	lines.Flush()
	if err := lines.Error(); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	return nil
}

// made is the site that is simulated, with readings of each node.
func made(nodes, readings int, seed uint64, laboratory bool) trial.Made {
	const interval = 30 * time.Second
	m := trial.Made{
		Site: site.Options{Seed: seed, PerRoom: 6, Interval: interval, Laboratory: laboratory},
		Now:  time.Duration(readings) * interval, After: fault.Ordinary(),
	}
	if laboratory { // as that which was recorded
		m.Start, m.After, m.Site.PerRoom = trial.From().AddDate(0, 0, 3), nil, 13
	}
	m.Site.Rooms = (nodes + m.Site.PerRoom - 1) / m.Site.PerRoom
	return m
}

// labelled takes the nodes without labels away from those with some, and tells; without labels at all it takes none away.
func labelled(tracks []trial.Track, out io.Writer) []trial.Track {
	unlabelled := func(t trial.Track) bool { return t.Labels == nil }
	with := slices.DeleteFunc(slices.Clone(tracks), unlabelled)
	if len(with) == 0 || len(with) == len(tracks) {
		return tracks
	}
	for _, t := range tracks {
		if unlabelled(t) {
			_, _ = fmt.Fprintf(out, "not measured for want of labels: %s\n", t.Node)
		}
	}
	return with
}

// decimal writes a value as sensors send it; nothing for none.
func decimal(value float64) string {
	if math.IsNaN(value) {
		return ""
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}
