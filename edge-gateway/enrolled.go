package main

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/gateway"
)

// topic is what a gateway publishes by.
type topic interface {
	gateway.Publisher
	// await returns what is known of why nothing can be published.
	await(ctx context.Context) error
	close()
}

// enrolled publishes with what the API grants.
type enrolled struct {
	gateway.Granted // ready

	session *enrolment.Session
	connect func(enrolment.Target) topic

	mu     sync.Mutex
	target enrolment.Target
	opened topic // at target; nil before the first publish
}

func newEnrolled(session *enrolment.Session, connect func(enrolment.Target) topic) *enrolled {
	e := &enrolled{session: session, connect: connect}
	e.Granted = func() (gateway.Publisher, error) { return e.ready() }
	return e
}

// ready returns the topic of this moment.
func (e *enrolled) ready() (topic, error) {
	if err := e.session.Ready(); err != nil {
		return nil, err
	}
	target := e.session.Target()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opened == nil || e.target != target {
		if e.opened != nil {
			e.opened.close()
		}
		e.opened, e.target = e.connect(target), target
	}
	return e.opened, nil
}

func (e *enrolled) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opened != nil {
		e.opened.close()
	}
}

// await waits for the first answer of the API, or its first failure.
func (e *enrolled) await(ctx context.Context) error {
	select {
	case <-e.session.Tried():
	case <-ctx.Done():
		return nil
	}
	topic, err := e.ready()
	if err != nil {
		return err
	}
	return topic.await(ctx)
}

// identity is that of the gateway whose state is in the folder of these settings.
func identity(environ []string) (*enrolment.Identity, error) {
	return enrolment.Load(folderOf(environ))
}

// folderOf is the folder in which a gateway with these settings keeps its state.
func folderOf(environ []string) string {
	folder := ""
	for _, assignment := range environ {
		if value, ok := strings.CutPrefix(assignment, "OUTBOX_DIR="); ok {
			folder = value // the last one holds
		}
	}
	return cmp.Or(folder, "outbox")
}

// withIdentity adds what an enrolled gateway knows without settings.
func withIdentity(environ []string, id *enrolment.Identity) []string {
	if id == nil {
		return environ
	}
	return append(slices.Clip(environ), "PROJECT_ID="+id.ProjectID, "DATA_TOPIC="+id.Topic)
}

// openClock opens the clock of an enrolled gateway.
func openClock(ctx context.Context, folder string, system func() time.Time, log *slog.Logger) *clock.Clock {
	opened, err := clock.Open(filepath.Join(folder, "clock.json"), system, clock.ThisBoot())
	if err != nil {
		log.WarnContext(ctx, "what was known of the time is lost, the API will tell it", "error", err.Error())
	}
	return opened
}

// sessionChecks let /health and the log tell what is wrong with an enrolment.
func sessionChecks(session *enrolment.Session) []gateway.Check {
	return []gateway.Check{
		{Name: "enrolment", Every: time.Second, Ask: session.Problem},
		{Name: "system clock", Every: time.Second, Ask: session.ClockProblem},
	}
}

// credentials are the client options by which an enrolled gateway is known at Google.
func credentials(session *enrolment.Session, google connections) []option.ClientOption {
	if google.Emulator != "" {
		return nil
	}
	return []option.ClientOption{option.WithTokenSource(session)}
}

// newTopic returns what an open or an enrolled gateway publishes by.
func newTopic(
	ctx context.Context, s Config, google connections, session *enrolment.Session, clock func() time.Time, log *slog.Logger,
) topic {
	connect := func(target enrolment.Target, options ...option.ClientOption) topic {
		attempts := &gateway.Attempts{}
		return &connecting{
			open: func() (*pubsub.Client, error) {
				return pubsub.NewClient(context.WithoutCancel(ctx), target.ProjectID, append(gateway.ClientOptions(attempts), options...)...)
			},
			attempts: attempts, topic: target.Topic, timeout: s.PublishTimeout, every: s.ProbeEvery, clock: clock, log: log,
		}
	}
	if session == nil {
		return connect(enrolment.Target{ProjectID: s.ProjectID, Topic: s.DataTopic})
	}
	return newEnrolled(session, func(target enrolment.Target) topic { return connect(target, credentials(session, google)...) })
}

// reportOf returns what an enrolled gateway reports each minute.
func reportOf(site *gateway.Gateway, state func() announce.State) func() enrolment.Report {
	return func() enrolment.Report {
		nodes, kept := site.Report()
		return enrolment.Report{Role: string(state().Role), OutboxReadings: kept, Nodes: nodes}
	}
}
