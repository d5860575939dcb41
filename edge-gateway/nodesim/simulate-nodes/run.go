package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/logging"
)

// statusEvery is the pause between status lines, in wall time.
const statusEvery = 5 * time.Second

// options are the command line.
type options struct {
	simulation nodesim.Config
	misbehave  string

	replay      string
	concurrency int
	ids         string
	humidity    *float64
	verbose     bool
}

func parse(arguments []string, errors io.Writer) (options, error) {
	var o options
	c := &o.simulation
	flags := flag.NewFlagSet("simulate-nodes", flag.ContinueOnError)
	flags.SetOutput(errors)
	flags.StringVar(&c.Gateway, "gateway", "http://127.0.0.1:8080", "base `URL` of the gateway")
	discovered := flags.Bool("discover", false, "find the gateway by mDNS, as nodes do, instead of --gateway")
	flags.IntVar(&c.Nodes, "nodes", 8, "number of nodes, four to a room")
	flags.Float64Var(&c.Speed, "speed", 0, "seconds of node time per second (default 1; with --replay as fast as possible)")
	flags.Uint64Var(&c.Seed, "seed", 1, "of rooms and noise; the same seed gives the same values")
	flags.DurationVar(&c.Interval, "interval", nodesim.DefaultInterval, "node time between readings of a node")
	flags.StringVar(&c.Prefix, "prefix", nodesim.DefaultPrefix, "of node ids")
	flags.DurationVar(&c.FailureEvery, "failure-every", nodesim.DefaultFailureEvery,
		"mean node time between cooling failures of a room; negative for none")
	flags.DurationVar(&c.HotAfter, "hot-after", 0, "let the first room pass 50 °C this long after the start; 0 leaves it to chance")
	flags.StringVar(&o.misbehave, "misbehave", "", fmt.Sprintf("comma-separated `list` of %v, or all", nodesim.Misbehaviours()))
	flags.StringVar(&o.replay, "replay", "", "send the series of a CSV `file` instead; - reads standard input")
	flags.IntVar(&o.concurrency, "concurrency", nodesim.DefaultConcurrency, "requests at a time in a replay")
	flags.StringVar(&o.ids, "ids", "run", "message ids of a replay: run (new in every run) or stable")
	humidity := flags.Float64("humidity", 0, "in percent, for rows of a replay without one (default: leave them out)")
	flags.BoolVar(&o.verbose, "verbose", false, "log the errors of single nodes")
	if err := flags.Parse(arguments); err != nil {
		return o, fmt.Errorf("command line: %w", err)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.ids != "run" && o.ids != "stable" {
		return o, fmt.Errorf("--ids must be run or stable: got %q", o.ids)
	}
	flags.Visit(func(given *flag.Flag) {
		if given.Name == "humidity" {
			o.humidity = humidity
		}
	})
	if *discovered {
		c.Resolve = nearest
	}
	var err error
	c.Misbehave, err = nodesim.ParseMisbehaviours(o.misbehave)
	return o, err
}

// searchTime is how long one search for the gateway may take. A node that found
// none tries again when it next has something to send.
const searchTime = 10 * time.Second

// nearest is the gateway that answers first.
func nearest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found, err := discover.Find(ctx)
	if err != nil {
		return "", fmt.Errorf("find a gateway by mDNS: %w", err)
	}
	return found.URL(), nil
}

// run executes the command line until it is done or the context ends.
func run(ctx context.Context, arguments []string, out, errors io.Writer, clock func() time.Time) error {
	o, err := parse(arguments, errors)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	o.simulation.Log = logging.New(errors, level, "")
	o.simulation.Clock = clock
	if o.replay != "" {
		return replay(ctx, o, out)
	}
	return simulate(ctx, o.simulation, out)
}

func simulate(ctx context.Context, config nodesim.Config, out io.Writer) error {
	simulation, err := nodesim.New(config)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- simulation.Run(ctx) }()
	status := time.NewTicker(statusEvery)
	defer status.Stop()
	for {
		select {
		case err := <-ended:
			_, _ = fmt.Fprintln(out, simulation.Stats())
			return err
		case <-status.C:
			_, _ = fmt.Fprintln(out, simulation.Stats())
		}
	}
}

func replay(ctx context.Context, o options, out io.Writer) error {
	file := io.Reader(os.Stdin)
	if o.replay != "-" {
		opened, err := os.Open(o.replay)
		if err != nil {
			return fmt.Errorf("series: %w", err)
		}
		defer func() { _ = opened.Close() }()
		file = opened
	}
	result, err := nodesim.Replay(ctx, nodesim.ReplayOptions{
		Resolve:     o.simulation.Resolve,
		Gateway:     o.simulation.Gateway,
		File:        file,
		Speed:       o.simulation.Speed,
		Concurrency: o.concurrency,
		Humidity:    o.humidity,
		StableIDs:   o.ids == "stable",
		Clock:       o.simulation.Clock,
	})
	if result.Rows > 0 {
		_, _ = fmt.Fprintln(out, result)
	}
	if result.SkippedHumidity > 0 {
		_, _ = fmt.Fprintln(out, "rows without humidity were left out; --humidity gives them one")
	}
	return err
}
