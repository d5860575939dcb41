package release

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
)

// smoke runs the smoke test, which asks once and no more.
func smoke(t *testing.T, address string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	c := exec.CommandContext(t.Context(), "./smoke", address)
	c.Env = append(os.Environ(), "SMOKE_RETRIES=0")
	output, err := c.CombinedOutput()
	return string(output), err
}

// showing is a running API with this page for its dashboard, which the tests' own
// may be built without.
func showing(t *testing.T, base, page string) string {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(target))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// TestSmoke lets the running API through, and not one whose database is away.
func TestSmoke(t *testing.T) {
	t.Parallel()
	program := functiontest.Build(t, "../../server")
	topics := pubsubtest.Start(t)
	serve := func(database string) string {
		return functiontest.Start(t, program, "DATABASE_URL="+database, "SECRET_KEY="+strings.Repeat("k", 32), "PROJECT_ID=test",
			"READINGS=postgres", "PUBSUB_EMULATOR_HOST="+topics.Addr).URL
	}
	const page = `<html><script type="module" src="/assets/index.js"></script></html>`
	good, lost := serve(pgtest.URL(t)), serve("postgres://nobody@127.0.0.1:1/none")
	if output, err := smoke(t, showing(t, good, page)); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	if output, err := smoke(t, showing(t, good, `<html>The dashboard is not built.</html>`)); err == nil || !strings.Contains(output, "/: 200, want 200 with \"<script") {
		t.Errorf("without a dashboard: %v\n%s", err, output)
	}
	if output, err := smoke(t, showing(t, lost, page)); err == nil || !strings.Contains(output, "/api/v1/customers/login: 50") {
		t.Errorf("without a database: %v\n%s", err, output)
	}
}

// TestSmokeFaults refuses what is no API of ours.
func TestSmokeFaults(t *testing.T) {
	t.Parallel()
	if output, err := smoke(t, ""); err == nil || !strings.Contains(output, "usage") {
		t.Errorf("without an address: %v, %s", err, output)
	}
	if output, err := smoke(t, "http://127.0.0.1:1"); err == nil || !strings.Contains(output, "/health: no answer") {
		t.Errorf("where nobody listens: %v, %s", err, output)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(other.Close)
	if output, err := smoke(t, other.URL); err == nil || !strings.Contains(output, "/health: 200, want 200 with \"healthy\"") {
		t.Errorf("of another server: %v, %s", err, output)
	}
}
