// Package entrypoint registers detect with the Functions Framework. The
// buildpack takes it for the whole function: it is placed at the root of the
// deployed archive, and its init is all that runs before the first message.
package entrypoint

import (
	"context"
	"fmt"
	"os"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/registry"
	"coldaisle.dev/shared/store"
)

type settings struct {
	function.Common
	detect.Config
}

func init() {
	function.Register(function.Program{
		Environ: os.Environ(), Log: os.Stdout, Errors: os.Stderr, Clock: time.Now, Exit: os.Exit,
	}, "detect", open)
}

func open(ctx context.Context, s settings, tools function.Tools) (push.Step, func(), error) {
	pool, closePool, err := cloudsql.Open(ctx, s.Database)
	if err != nil {
		return nil, nil, err
	}
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), s.Project)
	if err != nil {
		closePool()
		return nil, nil, fmt.Errorf("open Pub/Sub: %w", err)
	}
	topic := detect.NewTopic(client, s.AlertTopic)
	nodes := registry.New(store.New(pool), tools.Clock)
	step := detect.New(nodes, topic, nil, s.Defaults(), tools.Clock, tools.Log, tools.Tally)
	return step.Handle, func() { topic.Stop(); _ = client.Close(); closePool() }, nil
}
