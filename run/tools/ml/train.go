package main

import (
	"context"
	"encoding"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"coldaisle.dev/run/tools/ml/labelled"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/reading"
)

// perVerdict is of how many readings without a fault one is judged by a person,
// where labels stand for verdicts.
const perVerdict = 20

func train(ctx context.Context, arguments []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("train", flag.ContinueOnError)
	folder := flags.String("out", ".", "folder for the two models")
	seed := flags.Uint64("seed", 1, "of the random draws")
	verdicts := flags.Bool("verdicts", false, "take labels for verdicts of people: every anomalous reading, every 20th other")
	paths, err := parse(flags, arguments, 1)
	if err != nil {
		return err
	}
	nodes, _, err := load(paths, out)
	if err != nil {
		return err
	}
	in := learn.Input{History: historyOf(nodes), Seed: *seed, Started: clock()}
	if *verdicts {
		in.Labels = verdictsOf(nodes)
	}
	result, err := learn.Train(ctx, in)
	if err != nil {
		return err
	}
	for name, model := range map[string]encoding.BinaryMarshaler{
		result.Detector.Info.Name: result.Detector, result.Forecaster.Info.Name: result.Forecaster,
	} {
		content, err := model.MarshalBinary()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		path := filepath.Join(*folder, name+".bin")
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // readable by everybody on purpose
			return fmt.Errorf("write model: %w", err)
		}
		_, _ = fmt.Fprintf(out, "%s: %d bytes\n", path, len(content))
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result.Metrics); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// verdictsOf takes labels for what people said: of every anomalous reading and
// of every twentieth other.
func verdictsOf(nodes []labelled.Series) []learn.Labelled {
	var judged []learn.Labelled
	for _, n := range nodes {
		if n.Labels == nil {
			continue
		}
		for i, w := range features.Windows(n.Readings) {
			if w.Len() < features.MinPrevious || (!n.Labels[i] && i%perVerdict != 0) {
				continue
			}
			judged = append(judged, learn.Labelled{
				Reading: n.Readings[i], Anomalous: n.Labels[i],
				Window: reading.Window{
					Age: slices.Clone(w.Age), Temperature: slices.Clone(w.Temperature), Humidity: slices.Clone(w.Humidity),
				},
			})
		}
	}
	slices.SortStableFunc(judged, func(a, b learn.Labelled) int { return a.Reading.Time.Compare(b.Reading.Time) })
	return judged
}

func score(arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("score", flag.ContinueOnError)
	path := flags.String("model", "", "detector that train wrote, anomaly_v….bin")
	paths, err := parse(flags, arguments, 1)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(*path)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	detector, err := learn.DecodeDetector(content)
	if err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	nodes, _, err := load(paths, io.Discard)
	if err != nil {
		return err
	}
	lines := csv.NewWriter(out)
	_ = lines.Write([]string{"node_id", "timestamp", "temperature", "humidity", "score", "anomaly", "reason"})
	var x features.Extractor
	for _, n := range nodes {
		for i, w := range features.Windows(n.Readings) {
			r := n.Readings[i]
			j := detector.Detect(&x, w, r)
			strangeness := ""
			if j.Scored {
				strangeness = strconv.FormatFloat(j.Score, 'f', 4, 64)
			}
			_ = lines.Write([]string{
				n.ID, r.Time.Format(time.RFC3339Nano), decimal(r.Temperature), decimal(r.Humidity),
				strangeness, strconv.FormatBool(j.Anomalous()), string(j.Reason),
			})
		}
	}
	lines.Flush()
	if err := lines.Error(); err != nil {
		return fmt.Errorf("score: %w", err)
	}
	return nil
}
