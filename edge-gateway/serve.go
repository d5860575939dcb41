package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
)

// serve runs the gateway until the context ends: then it withdraws its announcement,
// finishes requests in flight, and leaves unpublished readings in the outbox.
func serve(ctx context.Context, environ []string, clock func() time.Time) error {
	s, err := loadSetup(environ, installation{"/"})
	if err != nil {
		return err
	}
	log := logging.New(os.Stderr, s.level(), s.ProjectID)
	for _, text := range s.unknown {
		log.WarnContext(ctx, "unknown setting, its default holds", "setting", text)
	}
	var session *enrolment.Session
	now := clock // dates readings
	if s.id != nil {
		corrected := openClock(ctx, s.OutboxDir, clock, log)
		now = corrected.Now
		session = enrolment.NewSession(s.id, corrected, clock, buildVersion(), s.Emulator == "", log)
		log.InfoContext(ctx, "enrolled", "gateway", s.id.GatewayID, "name", s.id.Name, "account", s.id.Account)
	}
	topic := newTopic(ctx, s.Config, session, clock, log)
	defer topic.close()
	withheld := withheldOutbox(s.Config, now)
	defer func() { _ = withheld.Close() }()
	var site *gateway.Gateway // from below on
	box, err := openOutbox(ctx, s.Config, now, func(opened *outbox.Outbox) {
		if site != nil {
			site.Restore(opened)
		}
	}, log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }()
	listener, local, err := listen(ctx, &s.Config, log)
	if err != nil {
		return err
	}
	config, announcer := configure(ctx, s, session, clock, log)
	config.Withheld = withheld
	site = gateway.New(config, topic, box, now, log)
	log.InfoContext(ctx, "serving", "address", listener.Addr().String(), "version", buildVersion(), "backlog", box.Stats().Pending)
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return gateway.Serve(ctx, listener, site, log) })
	if local != nil {
		standby := func() bool { return s.Announce && announcer.State().Standby() }
		parts.Go(func() error { return gateway.Serve(ctx, local, site.LiveHandler(standby), log) })
	}
	parts.Go(func() error { return site.ServeControl(ctx, s.OutboxDir, log) })
	parts.Go(func() error {
		topic.await(ctx)
		return site.Run(ctx)
	})
	if session != nil {
		parts.Go(func() error {
			return session.Run(ctx, func() enrolment.Report {
				nodes, kept := site.Report()
				return enrolment.Report{Role: string(announcer.State().Role), OutboxReadings: kept, Nodes: nodes}
			})
		})
	}
	if s.Announce {
		parts.Go(func() error { return announcer.Run(ctx) })
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // does nothing without systemd
	err = parts.Wait()
	log.InfoContext(context.WithoutCancel(ctx), "stopped", "backlog", box.Stats().Pending)
	return err //nolint:wrapcheck // the parts say what they are
}

// configure returns the configuration of the gateway, with its checks and metrics, and what
// announces it.
func configure(
	ctx context.Context, s setup, session *enrolment.Session, clock func() time.Time, log *slog.Logger,
) (gateway.Config, *announce.Announcer) {
	config := gateway.Config{
		NodeRate: s.NodeRate, NodeBurst: s.NodeBurst, AddressRate: 1000, // contract 8.11
		ProbeEvery: s.ProbeEvery, IdleProbe: s.IdleProbe, Version: buildVersion(), NodeMetrics: s.NodeMetrics,
		NodesFile: filepath.Join(s.OutboxDir, "nodes.json"), Checks: checks(s.Config, clock),
	}
	config.UseSources(ctx, s.SourcesFile, log)
	announced := announce.Config{Port: s.Port, SiteToken: s.SiteToken}
	if session != nil {
		announced.Enrolment, config.Enrolment = session, session
		config.Checks = append(config.Checks,
			gateway.Check{Name: "enrolment", Every: time.Second, Run: session.Problem},
			gateway.Check{Name: "system clock", Every: time.Second, Run: session.ClockProblem})
		config.Collectors = session.Collectors()
	}
	announcer := announce.New(announced, clock, log)
	if s.Announce {
		active := func() bool { return announcer.State().Role == announce.RoleActive }
		config.Discovery = func() any { return announcer.State() }
		config.Checks = append(config.Checks,
			gateway.NameCheck(func() string { return announcer.State().Problem }),
			gateway.Check{Name: "name", Every: s.NameCheckEvery, Run: func(ctx context.Context) error {
				return discover.CheckAll(ctx, s.Port, active)
			}})
		config.Collectors = append(config.Collectors, announcer.Collectors()...)
	}
	return config, announcer
}

// listen returns the socket that systemd holds for the gateway
// (monitor-gateway.socket), so that connections wait while the program is replaced and
// none is refused. Without one it opens its own. local is the unix socket for the watch of
// this machine, by systemd (monitor-gateway-live.socket) or LIVE_SOCKET; nil without one.
func listen(ctx context.Context, s *Config, log *slog.Logger) (nodes, local net.Listener, err error) {
	inherited, err := activation.Listeners()
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	for _, listener := range inherited {
		switch address := listener.Addr().(type) {
		case *net.TCPAddr:
			if address.Port != s.Port {
				log.WarnContext(ctx, "the port of monitor-gateway.socket holds, not PORT", "port", address.Port, "setting", s.Port)
				s.Port = address.Port
			}
			nodes = listener
		case *net.UnixAddr:
			local = listener
		}
	}
	if nodes == nil {
		if nodes, err = (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(s.Port)); err != nil {
			return nil, nil, fmt.Errorf("listen: %w", err)
		}
	}
	if local == nil && s.LiveSocket != "" {
		if local, err = gateway.ListenLocal(ctx, s.LiveSocket); err != nil { // nodes are still served
			log.ErrorContext(ctx, "no watch of this machine can read live values", "error", err.Error())
		}
	}
	return nodes, local, nil
}

// checks returns the checks that every gateway has, for /health.
func checks(s Config, clock func() time.Time) []gateway.Check {
	look := doctor.Config{OutboxDir: s.OutboxDir, OutboxMaxBytes: s.OutboxMaxBytes, Emulator: s.Emulator, Clock: clock}
	every := 15 * time.Second
	if watchdog, err := daemon.SdWatchdogEnabled(false); err == nil && watchdog > 0 {
		every = min(every, watchdog/3)
	}
	return []gateway.Check{
		{Name: "address", Every: every, Fatal: true, Run: func(ctx context.Context) error { return alive(ctx, s.Port) }},
		{Name: "clock", Clock: true, Every: 10 * time.Minute, Run: look.CheckClock},
		{Name: "disk", Every: 10 * time.Minute, Run: look.CheckDisk},
	}
}

// alive queries /health over a new connection, as a node does: a kept-alive one may work while
// new ones fail. systemd restarts a gateway that does not answer within WatchdogSec.
func alive(ctx context.Context, port int) error {
	_, err := doctor.Health(ctx, urlOf(port))
	if err == nil {
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // does nothing without systemd
	}
	return err
}

// urlOf is the address of this machine's gateway.
func urlOf(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// openOutbox opens the outbox, later if its disk fails now, and calls opened then. Meanwhile
// readings still reach Pub/Sub while the uplink works, which beats a gateway that does not
// start.
func openOutbox(ctx context.Context, s Config, clock func() time.Time, opened func(*outbox.Outbox), log *slog.Logger) (*outbox.Late, error) {
	box := outbox.NewLate(func() (*outbox.Outbox, error) {
		box, err := outbox.Open(s.OutboxDir, outbox.Options{MaxBytes: s.OutboxMaxBytes, Retain: gateway.OutboxRetention, Clock: clock})
		if err == nil {
			opened(box)
		}
		return box, err
	}, clock)
	err := box.Open()
	if errors.Is(err, outbox.ErrInUse) {
		return nil, err
	}
	if err != nil {
		log.ErrorContext(ctx, "outbox cannot be opened, readings are lost while Pub/Sub is away", "error", err.Error())
	}
	return box, nil
}

// withheldOutbox is the outbox of readings that may not be published.
func withheldOutbox(s Config, clock func() time.Time) *outbox.Late {
	return outbox.NewLate(func() (*outbox.Outbox, error) {
		return outbox.Open(filepath.Join(s.OutboxDir, outbox.Withheld), outbox.Options{MaxBytes: s.OutboxMaxBytes, Clock: clock})
	}, clock)
}

func openClock(ctx context.Context, folder string, system func() time.Time, log *slog.Logger) *clock.Clock {
	opened, err := clock.Open(filepath.Join(folder, "clock.json"), system, clock.ThisBoot())
	if err != nil {
		log.WarnContext(ctx, "the saved time is lost until the API answers", "error", err.Error())
	}
	return opened
}
