package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/closing"
)

// startGateway starts the gateway, after the API, which gives an enrolled one the time.
func (s *System) startGateway(ctx context.Context, listener net.Listener) error {
	o := s.options
	topic := gateway.NewReadingPublisher(s.PubSub, queue.TopicData, 0)
	s.opened.Push("data topic", closing.NoError(topic.Stop))
	var publisher gateway.Publisher = topic
	var session *enrolment.Session
	now := o.Clock
	var config gateway.Config
	var enrolled announce.Enrolment
	if o.Enrol {
		var corrected *clock.Clock
		var err error
		if session, corrected, err = s.enrol(ctx, filepath.Join(o.DataDir, "enrolment")); err != nil {
			return err
		}
		publisher = gateway.Granted(func() (gateway.Publisher, error) { return topic, session.Ready() })
		now, enrolled = corrected.Now, session
		config.Enrolment = session
		config.Checks = append(config.Checks, gateway.Check{Name: "enrolment", Every: time.Second, Run: session.Problem})
	}
	s.announce(ctx, listener, enrolled, &config)
	config.NodesFile = filepath.Join(o.DataDir, "nodes.json")
	file := filepath.Join(o.DataDir, "sources.json")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		config.UseSources(ctx, file, s.log)
	}
	config.Batches.Sources = append(config.Batches.Sources, s.sources(s.GatewayURL)...)
	kept, err := outbox.Open(filepath.Join(o.DataDir, "outbox"), outbox.Options{Retain: gateway.OutboxRetention, Clock: now})
	if err != nil {
		return err
	}
	s.opened.Push("outbox", kept.Close)
	// Readings from before this enrolment.
	withheld, err := outbox.Open(filepath.Join(o.DataDir, "withheld"), outbox.Options{Retain: gateway.OutboxRetention, Clock: now})
	if err != nil {
		return err
	}
	s.opened.Push("withheld readings", withheld.Close)
	config.Withheld = withheld
	site := gateway.New(config, publisher, kept, now, s.log)
	if session != nil {
		s.runComponent(ctx, "gateway's session", func(ctx context.Context) error {
			return session.Run(ctx, func() enrolment.Report {
				nodes, pending := site.Report()
				return enrolment.Report{Role: string(announce.RoleActive), OutboxReadings: pending, Nodes: nodes}
			})
		})
		select {
		case <-session.Tried():
		case <-ctx.Done():
			return fmt.Errorf("first status of the gateway: %w", context.Cause(ctx))
		}
	}
	s.runComponent(ctx, "gateway's control socket", func(ctx context.Context) error {
		return site.ServeControl(ctx, filepath.Join(o.DataDir, "outbox"), s.log)
	})
	s.runComponent(ctx, "gateway's outbox", site.Run)
	s.runComponent(ctx, "gateway", func(ctx context.Context) error { return gateway.Serve(ctx, listener, site, s.log) })
	live, err := gateway.ListenLocal(ctx, filepath.Join(o.DataDir, "live.sock"))
	if err != nil { // its path may be too long
		s.log.WarnContext(ctx, "no watch can read live values", "error", err.Error())
		return nil
	}
	s.runComponent(ctx, "live values", func(ctx context.Context) error {
		return gateway.Serve(ctx, live, site.LiveHandler(func() bool { return false }), s.log)
	})
	return nil
}

// enrol enrols the gateway to the demo customer by the API, as somebody on site does, at its first start and once it
// knows of a revocation. The folder keeps its identity; a revoked one keeps its own while there is no other.
func (s *System) enrol(ctx context.Context, folder string) (*enrolment.Session, *clock.Clock, error) {
	id, err := enrolment.Load(folder)
	if err != nil {
		return nil, nil, err
	}
	if id == nil || id.Revoked() {
		anew, err := s.enrolAnew(ctx, folder)
		switch {
		case err == nil:
			id = anew
		case id == nil:
			return nil, nil, err
		default: // the customer may have another password meanwhile, and all else goes on
			s.log.WarnContext(ctx, "the revoked gateway cannot be enrolled anew", "error", err.Error())
		}
	}
	id.API = s.APIURL // at another port than before, perhaps
	corrected, err := clock.Open(filepath.Join(folder, "clock.json"), s.options.Clock, clock.ThisBoot())
	if err != nil {
		s.log.WarnContext(ctx, "the saved time is lost until the API answers", "error", err.Error())
	}
	return enrolment.NewSession(id, corrected, s.options.Clock, "local", false, s.log), corrected, nil
}

func (s *System) enrolAnew(ctx context.Context, folder string) (*enrolment.Identity, error) {
	user, _, err := s.demoUser(ctx)
	if err != nil {
		return nil, err
	}
	var created struct {
		Code string `json:"enrolment_code"`
	}
	if err := user.Call(ctx, http.MethodPost, "/api/v1/gateways", map[string]any{"name": "Local gateway"}, &created); err != nil {
		return nil, err
	}
	id, err := enrolment.Enrol(ctx, folder, created.Code, s.APIURL, func(enrolment.Offer) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("enrol the gateway: %w", err)
	}
	return id, nil
}
