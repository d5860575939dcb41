package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/enrolment/enrolmenttest"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/wire"
)

// TestEnrolledGateway enrols a gateway by the program itself, and runs it: nothing
// else is installed. Contract 8.18, 8.19 and 8.22.
func TestEnrolledGateway(t *testing.T) {
	t.Parallel()
	api := enrolmenttest.Start(t)
	server := startPubSub(t)
	p := newProcess(t, server.Addr, "PROJECT_ID=", "IDLE_PROBE=0")
	enrol := func(answer string, args ...string) (string, error) {
		var out bytes.Buffer
		err := runEnrol(t.Context(), append([]string{enrolmenttest.Code, "--api", api.URL}, args...), p.environ, strings.NewReader(answer), &out, installation{t.TempDir()})
		return out.String(), err
	}
	text, err := enrol("n\n")
	must.Fail(t, "who declines", err, enrolment.ErrDeclined)
	must.Contain(t, "what it is shown", text, "Account: ops@example.com\nGateway: Cellar\n")
	for _, args := range [][]string{nil, {"--yes"}} {
		must.Contain(t, "what is told", must.Get(enrol("y\n", args...))(t), "Enrolled as "+enrolmenttest.ID)
	}
	p.start()
	must.Eventually(t, "the first status", func() bool { return len(api.Statuses()) > 0 })
	must.Eventually(t, "a published reading", func() bool { return p.send("a1") == http.StatusOK })
	var out bytes.Buffer
	drill := func(args ...string) error {
		return runDrill(t.Context(), args, p.environ, &out, installation{t.TempDir()})
	}
	must.Do(t, drill("QJ5R2-W7YB3"))
	must.Contain(t, "what is told", out.String(), "The drill is sent.")
	must.Contain(t, "a drill without a code", fmt.Sprint(drill()), "monitor-gateway drill CODE")
	drills := server.Messages()
	must.Equal(t, "published at last", "QJ5R2-W7YB3", wire.DrillOf(drills[len(drills)-1].Data))
	for _, m := range server.Messages() { // the drill, too
		origin := must.Get(wire.ParseOrigin(m.Attributes))(t)
		data, err := wire.DecodeData(m.Data, time.Now())
		if err != nil || !origin.Verify(api.Key(), data.Reading.Time, m.Data) || origin.GatewayID != enrolmenttest.ID || !origin.Age.Known {
			t.Errorf("published %s with %v, %v", m.Data, m.Attributes, err)
		}
	}

	// It is revoked, which a restart makes it hear at once.
	api.Set(func(a *enrolmenttest.API) { a.Reply.Revoked = true })
	_ = p.end(syscall.SIGKILL)
	must.Contain(t, "a drill without a gateway", fmt.Sprint(drill("QJ5R2-W7YB3")), "no gateway answers")
	p.start()
	must.Eventually(t, "health", func() bool {
		h := p.health()
		return h != nil && strings.Contains(strings.Join(h.Reasons, "\n"), "enrolment: the enrolment of this gateway was revoked")
	})
	published := len(server.Messages())
	must.Equal(t, "a revoked gateway answers", http.StatusInternalServerError, p.send("a2"))
	must.Equal(t, "readings that it keeps", 0, p.health().Outbox.Readings)
	var report bytes.Buffer
	must.Fail(t, "the doctor", runDoctor(t.Context(), nil, p.environ, &report, time.Now), errProblemsFound)
	must.Contain(t, "the report", report.String(),
		"Cellar ("+enrolmenttest.ID+") of ops@example.com\n", "when these are in order, check the uplink", "PROBLEM  the enrolment of this gateway was revoked",
	)
	must.Contain(t, "a drill of a revoked gateway", fmt.Sprint(drill("QJ5R2-W7YB3")), "revoked")
	must.Equal(t, "a revoked gateway publishes", published, len(server.Messages()))
	_ = p.end(syscall.SIGKILL) // then the log is whole
	must.Contain(t, "the log", p.log.String(), "was revoked")
}

func TestEnrolsArguments(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	enrol := func(args ...string) error {
		return runEnrol(t.Context(), args, []string{"OUTBOX_DIR=" + t.TempDir()}, nil, &out, installation{t.TempDir()})
	}
	must.Do(t, enrol("-h"))
	must.Contain(t, "-h", out.String(), "enrol CODE --api URL")
	for _, args := range [][]string{{}, {"CODE"}, {"--api", "http://localhost:1"}, {"CODE", "--api", "http://example.com"}, {"CODE", "more", "--api", "http://localhost:1"}, {"--colour"}} {
		if err := enrol(args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// tokensSeen is a Pub/Sub that notes the tokens it is called with.
type tokensSeen struct {
	pubsubpb.UnimplementedPublisherServer

	mu   sync.Mutex
	seen []string
}

func (p *tokensSeen) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	header, _ := metadata.FromIncomingContext(ctx)
	p.seen = append(p.seen, in.GetTopic()+" "+strings.Join(header.Get("authorization"), ","))
	return &pubsubpb.PublishResponse{MessageIds: make([]string, len(in.GetMessages()))}, nil
}

// TestAccessToken publishes by Google's own client: it takes the token of the newest
// reply for each request, whatever token it had before. Contract 8.19.
func TestAccessToken(t *testing.T) {
	t.Parallel()
	google := &tokensSeen{}
	options := pubsubtest.ServeTLS(t, func(server *grpc.Server) { pubsubpb.RegisterPublisherServer(server, google) })
	api := enrolmenttest.Start(t)
	lend := func(token, topic string) {
		api.Set(func(a *enrolmenttest.API) {
			a.Reply.AccessToken, a.Reply.TokenExpiresAt, a.Reply.Topic = token, time.Now().Add(time.Hour), topic
		})
	}
	folder := t.TempDir()
	id := must.Get(enrolment.Enrol(t.Context(), folder, enrolmenttest.Code, api.URL, func(enrolment.Offer) bool { return true }))(t)
	log := logging.Discard()
	// A session that runs again asks at once, instead of after a minute.
	hear := func(s *enrolment.Session, token, topic string) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx, func() enrolment.Report { return enrolment.Report{} }) })
		must.Eventually(t, token, func() bool {
			got, err := s.Token()
			return err == nil && got.AccessToken == token && s.Target().Topic == topic
		})
		cancel()
		running.Wait()
	}
	session := enrolment.NewSession(id, openClock(t.Context(), folder, time.Now, log), time.Now, "v1", true, log)
	topic := newTopic(t.Context(), Config{PublishTimeout: 10 * time.Second, ProbeEvery: time.Second}, session, time.Now, log, options...)
	defer topic.close()
	m := gateway.Message{NodeID: "n1", Data: []byte("{}")}
	if err := topic.Publish(t.Context(), true, m)[0]; err == nil {
		t.Error("it publishes before there is a token")
	}
	lend("one", "data")
	hear(session, "one", "data")
	topic.await(t.Context())
	for _, next := range [][2]string{{"one", "data"}, {"two", "data"}, {"two", "other"}} {
		lend(next[0], next[1])
		hear(session, next[0], next[1])
		must.Do(t, topic.Publish(t.Context(), true, m)[0])
	}
	must.Do(t, topic.Publish(t.Context(), false, m)[0])
	want := "projects/site/topics/data Bearer one\nprojects/site/topics/data Bearer two\nprojects/site/topics/other Bearer two\nprojects/site/topics/other Bearer two"
	google.mu.Lock()
	defer google.mu.Unlock()
	must.Equal(t, "Google was called", want, strings.Join(google.seen, "\n"))
}
