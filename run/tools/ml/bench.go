package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"coldaisle.dev/run/tools/ml/sklearn"
)

func bench(ctx context.Context, arguments []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	full := flags.Bool("full", false, "also grow scikit-learn's forest of 500,000 rows to full depth: minutes, and 5 GB of memory")
	if _, err := parse(flags, arguments, 0); err != nil {
		return err
	}
	lines, about, err := sklearn.Run(ctx, *full, clock)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, about)
	_, _ = fmt.Fprint(out, sklearn.WriteTable(lines))
	return nil
}
