package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/tooltest"
)

// before writes the sources of the commit before the newest migration into a folder. CI has
// the history, of which a shallow clone is fetched as much as is needed; where sources
// come without any, as to Cloud Build, the test is skipped, which CI had passed. It is
// skipped too while the first schema is the only one: nothing ran on an older one.
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

// TestVersionBeforeOnTheNewSchema runs the API and all functions of the version before the
// newest migration on the schema of this version: the smoke test passes, and a reading
// comes back with its alert. So a roll-back needs no older schema, and the version before
// serves while the migration runs.
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
	if output, err := smoke(t, showing(t, addresses[1], dashboardPage)); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	if err := r.run(ownMachine, "#!/usr/bin/env bash\nrun/tools/release/synthetic "+project+" "+addresses[1]); err != nil {
		t.Errorf("%v\n%s\n%s", err, r.log.String(), said.String())
	}
}
