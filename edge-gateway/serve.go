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

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/discover"
	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
)

// serve runs the gateway until the context ends: then it says goodbye, finishes
// what is under way, and leaves what it could not publish in the outbox.
func serve(ctx context.Context, environ []string, clock func() time.Time) error {
	id, err := identity(environ)
	if err != nil {
		return err
	}
	s, google, err := loadSettings(withIdentity(environ, id), installation{"/"})
	if err != nil {
		return err
	}
	log := logging.New(os.Stderr, s.level(), s.ProjectID)
	for _, text := range unknown(environ, installation{"/"}) {
		log.WarnContext(ctx, "unknown setting, its default holds", "setting", text)
	}
	var session *enrolment.Session
	now := clock // by which readings are stamped
	if id != nil {
		corrected := openClock(ctx, s.OutboxDir, clock, log)
		now = corrected.Now
		session = enrolment.NewSession(id, corrected, clock, buildVersion(), google.Emulator == "", log)
		log.InfoContext(ctx, "enrolled", "gateway", id.GatewayID, "name", id.Name, "account", id.Account)
	}
	topic := newTopic(ctx, s, google, session, clock, log)
	defer topic.close()
	aside, err := newWithheld(filepath.Join(s.OutboxDir, "withheld"), outbox.Options{MaxBytes: s.OutboxMaxBytes, Clock: now})
	if err != nil {
		log.ErrorContext(ctx, "readings that may not be published cannot be put aside", "error", err.Error())
	}
	defer aside.close()
	box, err := openOutbox(ctx, s, now, log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }()
	listener, err := listen(ctx, &s, log)
	if err != nil {
		return err
	}
	conduct := gateway.Config{
		NodeRate: s.NodeRate, NodeBurst: s.NodeBurst, AddressRate: s.AddressRate, AddressBurst: int(2*s.AddressRate) + 1, MaxNodes: s.MaxNodes, ProbeEvery: s.ProbeEvery, Version: buildVersion(),
		NodesFile: filepath.Join(s.OutboxDir, "nodes.json"), IdleProbe: s.IdleProbe, Withheld: aside, NodeMetrics: s.NodeMetrics,
		Checks: checks(s, google, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), clock),
	}
	announced := announce.Config{Name: discover.Name, Port: s.Port, Text: []string{"version=1.0"}, SiteToken: s.SiteToken}
	if session != nil {
		announced.Enrolment = session
	}
	announcer, err := announce.New(announced, clock, log)
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
	if session != nil {
		conduct.Enrolment = session
		conduct.Checks = append(conduct.Checks, sessionChecks(session)...)
		conduct.Collectors = append(conduct.Collectors, session.Collectors()...)
	}
	site := gateway.New(conduct, topic, box, now, log)
	if late, ok := box.(*outbox.Reopening); ok {
		late.OnOpen(func(opened *outbox.Outbox) { site.Restore(opened) })
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String(), "version", buildVersion(), "backlog", box.Stats().Pending)
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return gateway.Serve(ctx, listener, site, log) })
	parts.Go(func() error {
		if err := topic.await(ctx); err != nil {
			site.Unreachable(ctx, err)
		}
		return site.Run(ctx)
	})
	if session != nil {
		parts.Go(func() error { return session.Run(ctx, reportOf(site, announcer.State)) })
	}
	if s.Announce {
		parts.Go(func() error { return announcer.Run(ctx) })
		parts.Go(func() error { return check.Run(ctx) })
	}
	parts.Go(func() error { return runWatchdog(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), log) })
	err = parts.Wait()
	log.InfoContext(context.WithoutCancel(ctx), "stopped", "backlog", box.Stats().Pending)
	return err //nolint:wrapcheck // the parts say what they are
}

// listen returns the socket that systemd holds for the gateway
// (monitor-gateway.socket), so that connections wait while the program is replaced and
// none is refused. Without one it opens its own.
func listen(ctx context.Context, s *Config, log *slog.Logger) (net.Listener, error) {
	inherited, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	for _, listener := range inherited {
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			continue
		}
		if address.Port != s.Port {
			log.WarnContext(ctx, "the port of monitor-gateway.socket holds, not PORT", "port", address.Port, "setting", s.Port)
			s.Port = address.Port
		}
		return listener, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(s.Port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// checks are what the gateway asks itself beside its work.
func checks(s Config, google connections, address string, clock func() time.Time) []gateway.Check {
	look := doctor.Config{OutboxDir: s.OutboxDir, OutboxMaxBytes: s.OutboxMaxBytes, Emulator: google.Emulator, Clock: clock}
	visitor := newVisitor(10 * time.Second)
	return []gateway.Check{
		{Name: "address", Every: 15 * time.Second, Fatal: true, Ask: func(ctx context.Context) error { return alive(ctx, visitor, address) }},
		{Name: "clock", Every: 10 * time.Minute, Ask: look.CheckClock},
		{Name: "disk", Every: 10 * time.Minute, Ask: look.CheckDisk},
	}
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
