package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
)

// serve runs the gateway until the context ends: then it says goodbye, finishes
// what is under way, and leaves what it could not publish in the outbox.
func serve(ctx context.Context, environ []string, clock func() time.Time) error {
	s, _, err := loadSettings(environ, installation{"/"})
	if err != nil {
		return err
	}
	log := logging.New(os.Stderr, s.level(), s.ProjectID)
	for _, text := range unknown(environ, installation{"/"}) {
		log.WarnContext(ctx, "unknown setting, its default holds", "setting", text)
	}
	topic := &connecting{
		open: func() (*pubsub.Client, error) {
			return pubsub.NewClient(context.WithoutCancel(ctx), s.ProjectID, gateway.ClientOptions()...)
		},
		topic: s.DataTopic, timeout: s.PublishTimeout, every: s.ProbeEvery, clock: clock, log: log,
	}
	defer topic.close()
	box, err := openOutbox(ctx, s, clock, log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(s.Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	conduct := gateway.Config{
		NodeRate: s.NodeRate, NodeBurst: s.NodeBurst, MaxNodes: s.MaxNodes, ProbeEvery: s.ProbeEvery, Version: buildVersion(),
		NodesFile: filepath.Join(s.OutboxDir, "nodes.json"),
	}
	announcer, err := announce.New(announce.Config{Name: discover.Name, Port: s.Port, Text: []string{"version=1.0"}, SiteToken: s.SiteToken}, clock, log)
	if err != nil {
		return err
	}
	check := discover.NewWatcher(s.Port, s.NameCheckEvery, func() bool { return announcer.State().Role == announce.RoleActive }, log)
	if s.Announce {
		found := func() announce.State {
			state := announcer.State()
			state.Problem = cmp.Or(state.Problem, check.Problem())
			return state
		}
		conduct.Discovery = func() any { return found() }
		conduct.Degraded = func() string { return found().Problem }
		conduct.Collectors = append(conduct.Collectors, announcer, check)
	}
	site := gateway.New(conduct, topic, box, clock, log)
	log.InfoContext(ctx, "serving", "address", listener.Addr().String(), "version", buildVersion(), "backlog", box.Stats().Pending)
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return gateway.Serve(ctx, listener, site, log) })
	parts.Go(func() error {
		if _, err := topic.connect(ctx); err != nil {
			site.Unreachable(ctx, err)
		}
		return site.Run(ctx)
	})
	if s.Announce {
		parts.Go(func() error { return announcer.Run(ctx) })
		parts.Go(func() error { return check.Run(ctx) })
	}
	parts.Go(func() error { return runWatchdog(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), log) })
	err = parts.Wait()
	log.InfoContext(context.WithoutCancel(ctx), "stopped", "backlog", box.Stats().Pending)
	return err //nolint:wrapcheck // the parts say what they are
}

// box is an outbox that can be closed.
type box interface {
	gateway.Outbox
	Close() error
}

// openOutbox opens the outbox, or, when its disk has failed, something that tries
// again: readings still reach Pub/Sub for as long as the uplink holds, which beats a
// gateway that does not start.
func openOutbox(ctx context.Context, s Config, clock func() time.Time, log *slog.Logger) (box, error) {
	open := func() (*outbox.Outbox, error) {
		return outbox.Open(s.OutboxDir, outbox.Options{MaxBytes: s.OutboxMaxBytes, Retain: gateway.OutboxRetention, Clock: clock})
	}
	opened, err := open()
	if errors.Is(err, outbox.ErrInUse) {
		return nil, err
	}
	if err != nil {
		log.ErrorContext(ctx, "outbox cannot be opened, readings are lost while Pub/Sub is away", "error", err.Error())
		return outbox.NewReopening(open, clock, err), nil
	}
	return opened, nil
}
