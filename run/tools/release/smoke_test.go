package release

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/tooltest"
)

// smoke runs the smoke test, which asks once and no more: it passes, or fails for a reason.
func smoke(t *testing.T, address, reason string) {
	t.Helper()
	tooltest.Program(t, "curl")
	c := exec.CommandContext(t.Context(), "./smoke", address)
	c.Env = append(os.Environ(), "SMOKE_RETRIES=0")
	output, err := c.CombinedOutput()
	must.Equal(t, address+" passes:\n"+string(output), reason == "", err == nil)
	must.Contain(t, "the smoke test", string(output), reason)
}

const dashboardPage = `<html><script type="module" src="/assets/index.js"></script></html>`

// showing is a running API with this page for its dashboard, which the tests' own may be built without.
func showing(t *testing.T, base, page string) string {
	t.Helper()
	target := must.Get(url.Parse(base))(t)
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
	good, lost := serve(pgtest.URL(t)), serve("postgres://nobody@127.0.0.1:1/none")
	smoke(t, showing(t, good, dashboardPage), "")
	smoke(t, showing(t, good, `<html>The dashboard is not built.</html>`), "/: 200, want 200 with \"<script")
	smoke(t, showing(t, lost, dashboardPage), "/api/v1/customers/login: 50")
}

// TestSmokeFaults refuses what is no API of ours.
func TestSmokeFaults(t *testing.T) {
	t.Parallel()
	smoke(t, "", "usage")
	smoke(t, "http://127.0.0.1:1", "/health: no answer")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(other.Close)
	smoke(t, other.URL, "/health: 200, want 200 with \"healthy\"")
}

// publishing is a release in a cloud that publishes by a client of Pub/Sub.
func publishing(t *testing.T, client *pubsub.Client) (*cloud, *release) {
	t.Helper()
	topic := client.Publisher("data")
	t.Cleanup(topic.Stop)
	c := newCloud(t)
	c.deliver = func(data []byte, attributes map[string]string) error {
		_, err := topic.Publish(t.Context(), &pubsub.Message{Data: data, Attributes: attributes}).Get(t.Context())
		return err
	}
	r := c.begin(t, "b1", first, c.machine(t, nil))
	must.Do(t, os.MkdirAll(filepath.Join(r.folder, "dist/release"), 0o700))
	return c, r
}

// TestSyntheticReading sends readings through the whole system, twice: the second finds
// the customer and the sensor that the first has made, and no alert of the first. A system
// whose ingest or detection is away does not pass, and the script reports it.
func TestSyntheticReading(t *testing.T) {
	t.Parallel()
	var away atomic.Value // the function that fails
	database := pgtest.URL(t)
	s := must.Get(system.Start(t.Context(), system.Options{
		DataDir: t.TempDir(), DatabaseURL: database, Clock: time.Now, Log: logging.Discard(), PasswordCost: 4,
		WrapHandler: func(function string, next push.HandleFunc) push.HandleFunc {
			return func(ctx context.Context, m push.Message) error {
				if function == away.Load() {
					return errors.New("away")
				}
				return next(ctx, m)
			}
		},
	}))(t)
	t.Cleanup(func() { _ = s.Stop() })
	c, r := publishing(t, s.PubSub)
	send := func(wait string) error {
		r.environ = append(r.environ, "SYNTHETIC_WAIT="+wait)
		return r.run(ownMachine, "#!/usr/bin/env bash\nrun/tools/release/synthetic "+project+" "+s.APIURL)
	}
	for range 2 {
		if err := send("120"); err != nil {
			t.Fatal(err, r.log.String())
		}
	}
	must.Equal(t, "readings came back:\n"+r.log.String(), 2, strings.Count(r.log.String(), "came back with its alert"))
	account := c.object("release/account")
	if !regexp.MustCompile(`^Aa1-[0-9a-f]{24} release-[0-9a-f]{24} release-[0-9a-f]{24}@coldaisle\.example\n$`).MatchString(account) {
		t.Errorf("account %q", account)
	}
	away.Store("ingest")
	if err := send("1"); err == nil || !strings.Contains(r.log.String(), " degrees does not come back with its alert after ") {
		t.Errorf("without ingest: %v\n%s", err, r.log.String())
	}
	away.Store("detect")
	must.Equal(t, "without detection a release is good", false, send("1") == nil)
	r.says("does not come back with its alert")
	connection := must.Get(pgx.Connect(t.Context(), database))(t)
	defer func() { _ = connection.Close(t.Context()) }()
	var sensors int
	must.Do(t, connection.QueryRow(t.Context(), `SELECT count(*) FROM sensors`).Scan(&sensors))
	must.Equal(t, "sensors that are left, whose silence would be a dark site", 0, sensors)
}

// before writes the sources of the commit before the newest migration into a folder. CI has the history, of which a
// shallow clone is fetched as much as is needed; where sources come without any, as to Cloud Build, the test is
// skipped, which CI had passed. It is skipped too while the first schema is the only one: nothing ran on an older one.
func before(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		tooltest.Skip(t, "these sources have no history")
	}
	files, err := filepath.Glob(filepath.Join(root, "shared/store/migrations/*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("migrations: %q, %v", files, err)
	}
	if len(files) == 1 {
		t.Skip("the first schema is the only one")
	}
	git := func(arguments ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", arguments...)
		c.Dir = root
		output, err := c.Output()
		if err != nil {
			t.Fatalf("git %s: %v", strings.Join(arguments, " "), err)
		}
		return strings.TrimSpace(string(output))
	}
	if git("rev-parse", "--is-shallow-repository") == "true" {
		git("fetch", "--quiet", "--unshallow")
	}
	newest := git("log", "-1", "--format=%H", "--diff-filter=A", "--", "shared/store/migrations/"+filepath.Base(slices.Max(files)))
	// Every change has passed with a schema that is older than some changes.
	if since := must.Get(strconv.Atoi(git("rev-list", "--count", newest+"..HEAD")))(t); since > 20 && !tooltest.Nightly() {
		t.Skipf("the newest migration is %d changes old: at night", since)
	}
	folder := t.TempDir()
	archive := filepath.Join(t.TempDir(), "before.tar")
	git("archive", "--output", archive, newest+"^")
	if output, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return folder
}

// TestVersionBeforeOnTheNewSchema runs the API and all functions of the version before the newest migration on the
// schema of this version: the smoke test passes, and a reading comes back with its alert. So a roll-back needs no older
// schema, and the version before serves while the migration runs.
func TestVersionBeforeOnTheNewSchema(t *testing.T) {
	t.Parallel()
	sources := before(t)
	program := filepath.Join(t.TempDir(), "local")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./run/local") // as processtest builds
	build.Dir, build.Env = sources, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	database := pgtest.URL(t)
	migrate := exec.CommandContext(t.Context(), functiontest.Build(t, "../../server"), "migrate")
	migrate.Env = append(os.Environ(), "DATABASE_URL="+database)
	if output, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	var said logtest.Buffer
	serve := exec.CommandContext(t.Context(), program, "-nodes", "0", "-api-port", "0", "-gateway-port", "0", "-data", t.TempDir())
	serve.Env = append(os.Environ(), "DATABASE_URL="+database)
	serve.Stdout, serve.Stderr = &said, &said
	must.Do(t, serve.Start())
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	pattern := regexp.MustCompile(`(?s)(http://127\.0\.0\.1:\d+).*Pub/Sub +(127\.0\.0\.1:\d+)`)
	var addresses []string
	for deadline := time.Now().Add(5 * time.Minute); addresses == nil; time.Sleep(20 * time.Millisecond) { // between two looks
		if addresses = pattern.FindStringSubmatch(said.String()); addresses == nil && time.Now().After(deadline) {
			t.Fatalf("it does not serve: %s", said.String())
		}
	}
	_, r := publishing(t, pubsubtest.Dial(t, addresses[2], system.Project))
	r.environ = append(r.environ, "SYNTHETIC_WAIT=120")
	smoke(t, showing(t, addresses[1], dashboardPage), "")
	err := r.run(ownMachine, "#!/usr/bin/env bash\nrun/tools/release/synthetic "+project+" "+addresses[1])
	must.Hold(t, err == nil, "%v\n%s\n%s", err, r.log.String(), said.String())
}
