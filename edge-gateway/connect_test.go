package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/tooltest"
)

const account = "gateway@site.iam.gserviceaccount.com"

// guarded starts a Pub/Sub as Google has it: behind TLS, and only for clients with a
// token, which Google's library makes from the key of a service account by itself. It
// returns the options of such a client.
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

// startGateway runs a gateway in this process until the test ends. call returns status and
// body of an answer.
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
	if strings.Contains(log.String(), "PRIVATE KEY") {
		t.Error("the key is in the log")
	}
}

// TestFaultsKeepTheirKind has Pub/Sub fail in several ways, by a real client: what the
// client's library tries again until its time is over is told as what it is. Contract
// 8.12.
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
			// The library tries until the time is over. On a machine that is busy a second may
			// not do for the first attempt.
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

// faults runs a gateway that publishes to an endpoint in vain, and returns its metrics and its
// health.
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
	if got := results(); got["address"] == nil || got["clock"] != nil || got["disk"] != nil {
		t.Errorf("with nobody at the address: %v", got)
	}
	must.Do(t, os.RemoveAll(dir))
	if got := results(); got["disk"] == nil {
		t.Errorf("without the folder: %v", got)
	}
}
