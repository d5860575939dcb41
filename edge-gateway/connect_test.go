package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/enrolment/enrolmenttest"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

const account = "gateway@site.iam.gserviceaccount.com"

// guarded starts a Pub/Sub as Google has it: behind TLS, and only for clients with a token, which Google's library
// makes from the key of a service account by itself. It returns the options of such a client.
func guarded(t *testing.T) []option.ClientOption {
	t.Helper()
	onlyAccount := grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		var claims jwt.RegisteredClaims
		token := strings.TrimPrefix(strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ""), "Bearer ")
		if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || claims.Issuer != account {
			return nil, status.Errorf(codes.Unauthenticated, "token of %q: %v", claims.Issuer, err)
		}
		return next(ctx, in)
	})
	return pubsubtest.ServeTLS(t, func(server *grpc.Server) {
		pubsubpb.RegisterPublisherServer(server, &startPubSub(t).GServer)
	}, onlyAccount)
}

// startGateway runs a gateway in this process until the test ends. call returns status and body of an answer.
func startGateway(t *testing.T, config gateway.Config, topic *topic, log *slog.Logger) (box *outbox.Outbox, call func(method, path, body string) string) {
	t.Helper()
	t.Cleanup(topic.close)
	box = must.Get(outbox.Open(t.TempDir(), outbox.Options{Clock: time.Now}))(t)
	t.Cleanup(func() { _ = box.Close() })
	site := gateway.New(config, topic, box, time.Now, log)
	topic.await(t.Context())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = site.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return box, func(method, path, body string) string {
		answer := httptest.NewRecorder()
		site.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		return fmt.Sprintf("%d %s", answer.Code, strings.TrimSpace(answer.Body.String()))
	}
}

// TestCredentialsCome has a gateway find its credentials missing, then as systemd
// stands in for them, then half written, and at last there.
func TestCredentialsCome(t *testing.T) {
	options := guarded(t)
	path := filepath.Join(t.TempDir(), "google.json")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
	var log logtest.Buffer
	logger := logging.New(&log, slog.LevelInfo, "")
	topic := newTopic(t.Context(), Config{ProjectID: testProject, DataTopic: testTopic, PublishTimeout: 4 * time.Second, ProbeEvery: time.Millisecond},
		nil, time.Now, logger, options...)
	box, call := startGateway(t, gateway.Config{ProbeEvery: time.Millisecond}, topic, logger)
	key := pubsubtest.AccountKey(t, testProject, account, "https://oauth2.googleapis.com/token")
	must.Contain(t, "health before a reading", call(http.MethodGet, "/health", ""), `"up":false`)
	for i, content := range [][]byte{nil, []byte("{}"), key[:len(key)/2]} {
		if content != nil {
			must.Do(t, os.WriteFile(path, content, 0o600))
		}
		reading := fmt.Sprintf(`{"id":"%d","node_id":"n1","temperature":20,"humidity":40}`, i)
		must.Equal(t, fmt.Sprintf("answered with credentials %q", content), `500 {"error":"Failed to publish to Pub/Sub","kept":true}`, call(http.MethodPost, "/api/v1/message", reading))
		must.Contain(t, "health", call(http.MethodGet, "/health", ""), `"status":"degraded"`, "check the credentials: ")
	}
	must.Contain(t, "the log", log.String(), "google.json: no such file")
	must.Do(t, os.WriteFile(path, key, 0o600))
	must.Eventually(t, "what was kept to be delivered", func() bool { return box.Stats().Pending == 0 })
	must.Equal(t, "answer with credentials", `200 {"status":"published","message_id":"9"}`,
		call(http.MethodPost, "/api/v1/message", `{"id":"9","node_id":"n1","temperature":20,"humidity":40}`))
	must.Contain(t, "health", call(http.MethodGet, "/health", ""), `"status":"healthy"`, `"up":true`)
	must.Hold(t, !strings.Contains(log.String(), "PRIVATE KEY"), "the key is in the log")
}

// TestFaultsKeepTheirKind has Pub/Sub fail in several ways, by a real client: what the client's library tries again
// until its time is over is told as what it is. Contract 8.12.
func TestFaultsKeepTheirKind(t *testing.T) {
	t.Parallel()
	injected := func(code codes.Code) string {
		server := pstest.NewServer(pstest.WithErrorInjection("Publish", code, "as the test says"))
		t.Cleanup(func() { _ = server.Close() })
		return server.Addr
	}
	closed := fmt.Sprintf("127.0.0.1:%d", tooltest.FreePort(t))
	for kind, endpoint := range map[string]string{
		"refused": closed, "dns": "passthrough:///no.such.host.invalid:443",
		"permission": injected(codes.PermissionDenied), "quota": injected(codes.ResourceExhausted),
		"unavailable": injected(codes.Unavailable), "topic": injected(codes.NotFound), "credentials": injected(codes.Unauthenticated),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			// The library tries until the time is over. On a machine that is busy a second may not do for the first attempt.
			var said string
			for timeout := time.Second; timeout < 2*time.Minute; timeout *= 4 {
				var metrics string
				// Each attempt is a test of its own, which ends its gateway.
				t.Run(timeout.String(), func(t *testing.T) { metrics, said = faults(t, endpoint, timeout) })
				if strings.Contains(metrics, fmt.Sprintf("gateway_publish_faults_total{reason=%q} ", kind)) {
					return
				}
			}
			t.Errorf("no %q in the metrics; health says %s", kind, said)
		})
	}
}

// faults runs a gateway that publishes to an endpoint in vain, and returns its metrics and its health.
func faults(t *testing.T, endpoint string, timeout time.Duration) (metrics, health string) {
	t.Helper()
	topic := newTopic(t.Context(), Config{ProjectID: testProject, DataTopic: testTopic, PublishTimeout: timeout, ProbeEvery: time.Millisecond},
		nil, time.Now, logging.Discard(), option.WithEndpoint(endpoint), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	_, call := startGateway(t, gateway.Config{IdleProbe: time.Hour}, topic, logging.Discard())
	get := func(path string) string { return call(http.MethodGet, path, "") }
	// No node has sent anything: the gateway finds it out by itself.
	must.Eventually(t, "health", func() bool { return strings.Contains(get("/health"), `"status":"degraded","reasons":["publishing: `) })
	return get("/metrics"), get("/health")
}

// TestChecks breaks what the gateway asks itself.
func TestChecks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := checks(Config{OutboxDir: dir, OutboxMaxBytes: 1 << 20, Port: tooltest.FreePort(t), Emulator: "x"}, time.Now)
	results := func() map[string]error {
		found := map[string]error{}
		for _, c := range asked {
			found[c.Name] = c.Run(t.Context())
		}
		return found
	}
	got := results()
	must.Hold(t, got["address"] != nil && got["clock"] == nil && got["disk"] == nil, "with nobody at the address: %v", got)
	must.Do(t, os.RemoveAll(dir))
	if got := results(); got["disk"] == nil {
		t.Errorf("without the folder: %v", got)
	}
}

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
		_, err := wire.DecodeData(m.Data, time.Now())
		if err != nil || !origin.Verify(api.Key(), m.Data) || origin.GatewayID != enrolmenttest.ID || !origin.Age.Known {
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
		must.Hold(t, enrol(args...) != nil, "%q is taken", args)
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
	must.Hold(t, topic.Publish(t.Context(), true, m)[0] != nil, "it publishes before there is a token")
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
