// Command models shows the learned models in a bucket and puts others in use: the
// way back to an older pair.
//
//	models -bucket NAME -customer ID                                  list them, those in use with a star
//	models -bucket NAME -customer ID -anomaly NAME -forecasting NAME  use these from now on, or one of them
//
// Detection and the API follow within a minute. With STORAGE_EMULATOR_HOST the
// bucket is there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/modelstore"
)

func main() {
	config.Main("models", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, time.Now) })
}

func run(ctx context.Context, arguments []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("models", flag.ContinueOnError)
	name := flags.String("bucket", "", "`name` of the bucket")
	customer := flags.Int64("customer", 0, "`id` of the customer")
	detector := flags.String("anomaly", "", "`name` of the detector to put in use")
	forecaster := flags.String("forecasting", "", "`name` of the forecaster to put in use")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if *name == "" || *customer == 0 {
		return errors.New("-bucket and -customer are required")
	}
	bucket, err := modelstore.Open(ctx, *name)
	if err != nil {
		return err
	}
	defer func() { _ = bucket.Close() }()
	if *detector != "" || *forecaster != "" {
		used, err := bucket.Use(ctx, *customer, *detector, *forecaster, clock())
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "in use within a minute: %s\n", used.Version())
		return nil
	}
	live, err := bucket.Manifest(ctx, *customer)
	if err != nil {
		return err
	}
	names, err := bucket.List(ctx, *customer)
	if err != nil {
		return err
	}
	for _, each := range names {
		mark := " "
		if each == live.Detector || each == live.Forecaster || each == live.Calibration {
			mark = "*"
		}
		_, _ = fmt.Fprintln(out, mark, each)
	}
	return nil
}
