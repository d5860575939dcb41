// Command redeliver moves messages from a dead letter back to their topic, once the
// cause of their failure is mended:
//
//	go run ./run/tools/redeliver -project P -topic data -dry-run          # look at them
//	go run ./run/tools/redeliver -project P -topic data                   # all back
//	go run ./run/tools/redeliver -project P -topic data -function ingest  # those that ingest refused
//
// A message is removed from the dead letter only after it was published to its topic.
// Every subscriber of the topic gets it again, which does no harm: each stores a
// reading or an alert once. A message that fails again returns to the dead letter and
// stays there until the next run. PUBSUB_EMULATOR_HOST names an emulator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("redeliver", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("redeliver", flag.ContinueOnError)
	project := flags.String("project", os.Getenv("PROJECT_ID"), "Google Cloud project")
	topic := flags.String("topic", "", "topic the messages go back to: data, alerts or model-retraining")
	subscription := flags.String("subscription", "", "subscription of the dead letter (default TOPIC-dead-letter)")
	function := flags.String("function", "", "only messages that this function refused")
	limit := flags.Int("limit", 0, "most messages to move; 0 for all")
	idle := flags.Duration("idle", 10*time.Second, "how long the dead letter must be empty before the run ends")
	dryRun := flags.Bool("dry-run", false, "print the messages and leave them")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	if *project == "" || *topic == "" {
		return errors.New("-project and -topic are required")
	}
	if *subscription == "" {
		*subscription = *topic + "-dead-letter"
	}
	client, err := pubsub.NewClient(ctx, *project)
	if err != nil {
		return fmt.Errorf("open Pub/Sub: %w", err)
	}
	defer func() { _ = client.Close() }()
	r := redelivery{
		client: client, project: *project, topic: *topic, subscription: *subscription,
		function: *function, limit: *limit, dryRun: *dryRun, started: time.Now(), idle: *idle, out: os.Stdout,
	}
	counts, err := r.run(ctx)
	fmt.Printf("%d moved to %s, %d left\n", counts.moved, *topic, counts.left)
	return err
}
