// Command coldaisle-ml trains the models on recorded readings, scores readings
// with them, and measures how good they are: what the functions do with the
// stream, for a person with a file.
//
//	coldaisle-ml train -out DIR FILE.csv...        # both models, and what was measured
//	coldaisle-ml score -model FILE FILE.csv        # a judgement of every reading, as CSV
//	coldaisle-ml evaluate -report R.html FILE.csv... # ROC AUC, F1, forecast skill, with plots
//	coldaisle-ml simulate -nodes 52 > FILE.csv     # a made-up site to try these on
//	coldaisle-ml shipped > FILE                    # the calibration that customers begin with
//	coldaisle-ml bench                             # speed, beside scikit-learn where it is installed
//
// The form of the files is in the documentation of package shared/recording.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("coldaisle-ml", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, time.Now) })
}

func run(ctx context.Context, arguments []string, out io.Writer, clock func() time.Time) error {
	const usage = "say what to do: train, score, evaluate, simulate, shipped or bench (each with -h)"
	if len(arguments) == 0 {
		return errors.New(usage)
	}
	rest := arguments[1:]
	switch arguments[0] {
	case "train":
		return train(ctx, rest, out, clock)
	case "score":
		return score(rest, out)
	case "evaluate":
		return evaluate(ctx, rest, out, clock)
	case "simulate":
		return simulate(rest, out)
	case "shipped":
		return shipped(ctx, out)
	case "bench":
		return bench(ctx, rest, out, clock)
	default:
		return fmt.Errorf("%q: %s", arguments[0], usage)
	}
}
