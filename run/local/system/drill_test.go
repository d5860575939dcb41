package system_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/watch"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/wire"
)

// TestDrillThroughTheSystem sends drills by the API and by the enrolled gateway through the real
// components, each of which is stopped for one of them: the drill fails and names it.
func TestDrillThroughTheSystem(t *testing.T) {
	t.Parallel()
	var stopped atomic.Value // the function that has no part in a drill
	stopped.Store("")
	var ahead atomic.Int64
	folder := t.TempDir()
	s := start(t, func(o *system.Options) {
		o.Enrol, o.DataDir = true, folder
		o.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.WrapHandler = func(function string, next push.HandleFunc) push.HandleFunc {
			return func(ctx context.Context, m push.Message) error {
				if function == stopped.Load() && (wire.DrillOf(m.Data) != "" || strings.Contains(string(m.Data), `"drill"`)) {
					return nil // as if it came too late
				}
				return next(ctx, m)
			}
		}
	})
	credentials := must.Get(s.Demo(t.Context()))(t)
	owner := &user{system.APIUser{Base: s.APIURL}, t}
	must.Do(t, owner.SignIn(t.Context(), credentials, ""))
	sensor(t, owner, "n1")
	nodeAt(t, s).do(http.MethodPost, "/api/v1/message", `{"id":"m1","node_id":"n1","temperature":21,"humidity":40}`, 200)
	heard := func() (n int) {
		must.Do(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM sensor_data.readings WHERE node_id = 'n1'`).Scan(&n))
		return n
	}
	must.Eventually(t, "the reading is stored", func() bool { return heard() == 1 })
	rule := int64(field[float64](t, owner.do(http.MethodPost, "/api/v1/rules",
		`{"quantity":"humidity","direction":"below","limit":20,"for_s":600,"clear_margin":0,"clear_for_s":0,"severity":"warning","enabled":true}`, 201), "id"))

	runWatch(t, s, owner)
	begin := func(onSite bool) (path, code string) {
		t.Helper()
		started := owner.do(http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1","on_site":%v}`, rule, onSite), 201)
		if onSite {
			code = field[string](t, started, "code")
		}
		return fmt.Sprintf("/api/v1/drills/%.0f", field[float64](t, field[map[string]any](t, started, "drill"), "id")), code
	}
	reached := func(path string) string {
		t.Helper()
		var stages strings.Builder
		for _, stage := range field[[]any](t, owner.do(http.MethodGet, path, "", 200), "stages") {
			if members, ok := stage.(map[string]any); !ok || members["at"] != nil {
				stages.WriteString(field[string](t, stage, "stage") + " ")
			}
		}
		return stages.String()
	}
	// finish waits for the stages that a drill reaches, and has a person take it.
	finish := func(path, stages string) {
		t.Helper()
		must.Eventually(t, path+" reaches "+stages, func() bool { return reached(path) == stages })
		if incident, is := owner.do(http.MethodGet, path, "", 200).(map[string]any)["incident_id"].(float64); is { //nolint:forcetypeassert // else the test fails
			owner.do(http.MethodPost, fmt.Sprintf("/api/v1/incidents/%.0f/actions", incident), `{"action":"take"}`, 200)
		}
	}
	const whole = "sent published ingested judged alert shown told "
	want := map[string]string{} // the stage at which each fails
	path, _ := begin(false)
	finish(path, whole)
	want[path] = ""

	path, code := begin(true)
	must.Equal(t, "before the gateway sends it", "", reached(path))
	must.Equal(t, "status", 200, control(t, filepath.Join(folder, "outbox"), code))
	finish(path, whole)
	want[path] = ""
	for function, c := range map[string]struct{ stages, fails string }{
		"ingest": {"sent published judged alert shown told ", "ingested"}, "detect": {"sent published ingested ", "judged"},
		"storealert": {"sent published ingested judged shown told ", "alert"},
	} {
		stopped.Store(function)
		path, _ := begin(false)
		finish(path, c.stages)
		want[path] = c.fails
	}
	path, _ = begin(true) // and no gateway
	want[path] = "sent"

	ahead.Store(int64(incident.DrillTime + time.Second))
	must.Do(t, owner.SignIn(t.Context(), credentials, ""))
	for path, fails := range want {
		shown := owner.do(http.MethodGet, path, "", 200)
		failed, _ := shown.(map[string]any)["failed_stage"].(string) //nolint:forcetypeassert // else the test fails
		if state := field[string](t, shown, "state"); failed != fails || (state == "passed") != (fails == "") {
			t.Errorf("%s: %s at %q, want %q", path, state, failed, fails)
		}
	}
	for table, rows := range map[string]int{"alerts": 0, "excursions WHERE kind = 'threshold'": 0, "sensor_data.readings": 1} {
		var n int
		must.Do(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		must.Equal(t, "rows in "+table, rows, n)
	}
}

// runWatch runs the watch of an account, which tells everything by a command.
func runWatch(t *testing.T, s *system.System, owner *user) {
	t.Helper()
	folder := t.TempDir()
	key := field[string](t, owner.do(http.MethodPost, "/api/v1/api-keys", `{"name":"Watch","scope":"watch"}`, 201), "key")
	must.Do(t, os.WriteFile(filepath.Join(folder, "key"), []byte(key), 0o600))
	must.Do(t, os.Mkdir(filepath.Join(folder, "state"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(folder, "watch.yaml"), fmt.Appendf(nil, "name: test\napi: %s\nkey_file: %s\nstate: %s\nsteps:\n- name: all\n  command: [\"true\"]\n",
		s.APIURL, filepath.Join(folder, "key"), filepath.Join(folder, "state")), 0o600))
	config := must.Get(watch.Load(filepath.Join(folder, "watch.yaml"), os.Environ()))(t)
	w, closeJournal, err := watch.Open(t.Context(), config, &http.Client{}, time.Now, logging.Discard())
	must.Do(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		closeJournal()
	})
}

// control sends a drill by the control socket of the gateway in a folder, as monitor-gateway drill
// does, and returns the answer's status.
func control(t *testing.T, folder, code string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(folder, gateway.ControlSocket))
	}}}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway/drill", strings.NewReader(code)))(t)
	answer := must.Get(client.Do(request))(t) //nolint:bodyclose // in the next line
	_ = answer.Body.Close()
	return answer.StatusCode
}
