// Command monitor-gateway is the edge gateway: one runs at each site, finds its
// way to Pub/Sub, and takes the readings of the site's sensor nodes. Its
// environment is that of settings.go.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Environ())
	stop()
	if err != nil {
		config.Report(os.Stderr, "monitor-gateway", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, environ []string) error {
	s, err := config.Load[settings](environ)
	if err != nil {
		return err
	}
	log := logging.New(os.Stderr, slog.LevelInfo, s.ProjectID)
	client, err := pubsub.NewClient(ctx, s.ProjectID)
	if err != nil {
		return fmt.Errorf("pub/sub client: %w", err)
	}
	defer func() { _ = client.Close() }()
	topic := gateway.NewTopic(client, s.DataTopic)
	defer topic.Stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(s.Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String())
	return gateway.Serve(ctx, listener, gateway.New(topic, time.Now, log), log)
}
