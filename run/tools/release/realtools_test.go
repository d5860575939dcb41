package release

import (
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// realTools are wrappers of gcloud and terraform that work in the test's cloud, of
// those that are installed.
func (c *cloud) realTools(t *testing.T) map[string]string {
	t.Helper()
	address := must.Get(url.Parse(c.URL))(t)
	settings := map[string][]string{
		// Google's addresses are left to the proxy, which answers for all of them.
		"gcloud": {
			"CLOUDSDK_CONFIG=" + t.TempDir(), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true", "CLOUDSDK_CORE_DISABLE_PROMPTS=true",
			"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true",
			"CLOUDSDK_PROXY_TYPE=http_no_tunnel", "CLOUDSDK_PROXY_ADDRESS=" + address.Hostname(), "CLOUDSDK_PROXY_PORT=" + address.Port(),
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_RUN=http://run.invalid/", "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD=http://cloudbuild.invalid/",
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=http://pubsub.invalid/", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=http://storage.invalid/storage/v1/", "PATH=" + os.Getenv("PATH"),
		},
		"terraform": {"STORAGE_EMULATOR_HOST=" + c.URL, "GOOGLE_OAUTH_ACCESS_TOKEN=none", "CHECKPOINT_DISABLE=1"},
	}
	tools := map[string]string{}
	for name, environ := range settings {
		if path, err := exec.LookPath(name); err == nil {
			tools[name] = "#!/bin/sh\nexport '" + strings.Join(environ, "' '") + "'\nexec " + path + " \"$@\"\n"
		}
	}
	return tools
}

// TestReleasesWithTheRealTools plays releases with gcloud and terraform themselves,
// as far as they are installed: with gcloud, which takes seconds for a command, at night.
func TestReleasesWithTheRealTools(t *testing.T) {
	t.Parallel()
	// begin is a cloud in which a first version runs, and the programs for a second.
	begin := func(t *testing.T, names ...string) (*cloud, map[string]string) {
		t.Helper()
		if slices.Contains(names, "gcloud") && len(names) > 1 && !tooltest.Nightly() {
			t.Skip("gcloud takes minutes for a release")
		}
		c := newCloud(t)
		tools := c.realTools(t)
		maps.DeleteFunc(tools, func(name, _ string) bool { return !slices.Contains(names, name) })
		if len(tools) == 0 {
			tooltest.Skip(t, "%s not installed", strings.Join(names, " or "))
		}
		quick := maps.Clone(tools)
		delete(quick, "gcloud") // which takes seconds for a command
		c.begin(t, "b0", first, c.machine(t, quick)).want(true, first.live(), nil)
		return c, c.machine(t, tools)
	}

	t.Run("a good release that waits for another", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud", "terraform")
		other := "build b9 global\n2026-11-20T11:00:00Z\n1\n"
		c.put("release/lock", other)
		c.setBuild("b9", "WORKING")
		second := pipeline("api:2", "ingest:2", "detect:1")
		r := c.begin(t, "b1", second, folders)
		var done sync.WaitGroup
		done.Go(func() { r.want(true, second.live(), nil) })
		r.await("Waiting for another release: build b9 global")
		c.remove("release/lock")
		done.Wait()
		must.Equal(t, "the newest release began", "2026-11-20T12:00:01.123456Z\n", c.object("release/last"))
	})

	t.Run("an ill release after a dead one", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud", "terraform")
		c.put("release/lock", "build b9 global\n2026-11-20T11:00:00Z\n1\n")
		c.setBuild("b9", "TIMEOUT")
		second := version{"api:2-ill", map[string]string{"ingest": "ingest:2", "escalate": "escalate:1"}}
		r := c.begin(t, "b1", second, folders)
		r.want(false, map[string]string{"api": "api:1", "ingest": "ingest:1", "escalate": "escalate:1"}, nil)
		r.says("The lock is broken of a build that is over: build b9 global",
			"ingest: rolled back to ingest-00001=100.", "detect: taken away.")
		want := []string{
			"migrate of api:1 with api,detect,ingest",
			"migrate expand of api:2-ill with api,detect,ingest",
			"migrate of api:2-ill with api,escalate,ingest",
		}
		executions, _ := c.did()
		must.Equal(t, "migrations", want, executions)
	})

	t.Run("the lock twice", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "gcloud")
		secondLock(t, c, folders)
	})

	t.Run("a stale plan", func(t *testing.T) {
		t.Parallel()
		c, folders := begin(t, "terraform")
		stalePlan(t, c, folders)
	})
}
