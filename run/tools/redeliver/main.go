// Command redeliver posts the messages of a dead letter to the functions that refused
// them, once the cause is fixed:
//
//	go run ./run/tools/redeliver -project P -topic data -dry-run            # look at them
//	go run ./run/tools/redeliver -project P -topic data                     # all
//	go run ./run/tools/redeliver -project P -topic data -reason exhausted   # those of one reason
//	go run ./run/tools/redeliver -project P -topic data -function ingest -limit 10
//
// Each message goes to the function that refused it and to no other, as Pub/Sub posted
// it: with its attributes and its publish time, and as a first attempt. It is removed
// from the dead letter only after the function has handled it. A message that the function
// refuses again is dead-lettered again by the function itself.
//
// The function's push subscription has its address; -endpoint replaces it for a function
// that is paused, or for one of `make run`, see docs/one-machine.md. The caller's identity
// token comes from Application Default Credentials, which must be those of a service
// account (see docs/operations.md). PUBSUB_EMULATOR_HOST names an emulator, whose functions
// need no token.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/idtoken"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/push"
)

func main() {
	config.Main("redeliver", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("redeliver", flag.ContinueOnError)
	project := flags.String("project", os.Getenv("PROJECT_ID"), "Google Cloud project")
	topic := flags.String("topic", "", "topic whose dead letter it is: data, alerts or model-retraining")
	function := flags.String("function", "", "only messages that this function refused")
	reason := flags.String("reason", "", fmt.Sprintf("only messages refused for this reason, one of %q", push.Reasons()))
	endpoint := flags.String("endpoint", "", "URL of -function, instead of what its subscription says")
	limit := flags.Int("limit", 0, "most messages to post; 0 for all")
	idle := flags.Duration("idle", 10*time.Second, "how long the dead letter must be empty before the run ends")
	dryRun := flags.Bool("dry-run", false, "print the messages and leave them")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	if flags.NArg() > 0 { // what follows it would be ignored, -dry-run too
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *project == "" || *topic == "" {
		return errors.New("-project and -topic are required")
	}
	if *endpoint != "" && *function == "" {
		return errors.New("-endpoint is the URL of one function: name it by -function")
	}
	if *reason != "" && !slices.Contains(push.Reasons(), push.Reason(*reason)) {
		return fmt.Errorf("-reason must be one of %q", push.Reasons())
	}
	client, err := pubsub.NewClient(ctx, *project)
	if err != nil {
		return fmt.Errorf("open Pub/Sub: %w", err)
	}
	defer func() { _ = client.Close() }()
	r := redelivery{
		subscriptions: client.SubscriptionAdminClient, project: *project, subscription: *topic + "-dead-letter",
		function: *function, reason: *reason, endpoint: *endpoint, limit: *limit, dryRun: *dryRun,
		started: time.Now(), idle: *idle, authorise: identityToken, out: os.Stdout,
	}
	if os.Getenv("PUBSUB_EMULATOR_HOST") != "" {
		r.authorise = noToken
	}
	counts, err := r.run(ctx)
	fmt.Printf("%d handled, %d refused again, %d failed, %d left\n", counts.handled, counts.refusedAgain, counts.failed, counts.left)
	return err
}

// identityToken returns a client whose requests have an identity token for an audience.
func identityToken(ctx context.Context, audience string) (*http.Client, error) {
	client, err := idtoken.NewClient(ctx, audience)
	if err != nil {
		return nil, fmt.Errorf("identity token (impersonate the account coldaisle-redeliver, see docs/operations.md): %w", err)
	}
	return client, nil
}

func noToken(context.Context, string) (*http.Client, error) { return &http.Client{}, nil }
