// Command ml evaluates the models on recorded or simulated readings.
//
//	ml evaluate -report R.html FILE.csv... # ROC AUC, F1, forecast skill, with plots
//	ml simulate -nodes 52 > FILE.csv       # a simulated site to try it on
//	ml shipped > FILE                      # the calibration that customers begin with
//
// The form of the files is in the documentation of package shared/recording.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("ml", func(context.Context) error {
		signal.Reset()
		return run(os.Args[1:], os.Stdout, time.Now) //nolint:contextcheck // it holds nothing: an interrupt ends it at once
	})
}

func run(arguments []string, out io.Writer, clock func() time.Time) error {
	const usage = "say what to do: evaluate, simulate or shipped (the first two with -h)"
	if len(arguments) == 0 {
		return errors.New(usage)
	}
	rest := arguments[1:]
	switch arguments[0] {
	case "evaluate":
		return evaluate(rest, out, clock)
	case "simulate":
		return simulate(rest, out)
	case "shipped":
		return shipped(out)
	default:
		return fmt.Errorf("%q: %s", arguments[0], usage)
	}
}

// shipped writes the calibration that every customer begins with, of a simulated site of
// unlike nodes: shared/anomaly/shipped.calibration.
func shipped(out io.Writer) error {
	tracks, _ := trial.Made{
		Site: site.Options{Seed: trial.ShippedSeed, Rooms: 8, PerRoom: 6, Loss: 0.01, Jitter: time.Second, Unlike: true, Interval: 30 * time.Second},
		Past: 28 * 24 * time.Hour, Now: 12 * time.Hour,
	}.Tracks()
	_, calibration := trial.Replay(tracks, trial.Options{})
	content, err := calibration.Anonymous().MarshalBinary()
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if _, err := out.Write(content); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return nil
}
