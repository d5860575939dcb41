package modeltest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// planted is a bug: in a file, text in place of other text. A test of a package must find it.
type planted struct {
	file, is, becomes string
	pkg, run          string // empty: the scripts
}

// bugs are the kinds of mistakes that interleavings and lost answers bring to light.
func bugs() map[string]planted {
	const scripts, simulated = "./run/local/modeltest TestScripts", "./edge-gateway/gateway TestSimulatedHours"
	at := func(where, file, is, becomes string) planted {
		pkg, run, _ := strings.Cut(where, " ")
		return planted{file, is, becomes, pkg, run}
	}
	return map[string]planted{
		"the tenant dropped from a WHERE": at(scripts, "shared/store/incidents/alerts.go",
			"WHERE customer_id = @customer AND ` + store.SensorIn(", "WHERE @customer::bigint > 0 AND ` + store.SensorIn("),
		"a lock forgotten": at(scripts, "shared/store/incidents/judge.go",
			"WHERE channel = @channel AND node_id = @node\n\t\t\tFOR NO KEY UPDATE`", "WHERE channel = @channel AND node_id = @node`"),
		"judged by arrival": at(scripts, "shared/store/incidents/judgewrites.go",
			"if past || before.Settled() || !next {", "if false && !next {"),
		"acknowledged before the commit": at(scripts, "functions/ingest/ingest.go",
			"stored.err); err != nil {", "stored.err); errors.Is(err, readings.ErrRowRefused) {"),
		"a duplicate counted twice": at(scripts, "shared/store/incidents/alerts.go",
			"AND message_id = @message_id::varchar AND alert_type", "AND message_id = 'no' || @message_id::varchar AND alert_type"),
		"off by one in a hold": at(scripts, "shared/store/incidents/alerts.go",
			"visible_from <= @timestamp::timestamptz AND visible_until > @timestamp::timestamptz", "visible_from < @timestamp::timestamptz AND visible_until > @timestamp::timestamptz"),
		"a wake-up lost in coalescing": at(scripts, "shared/coalesce/coalesce.go",
			"g.inFlight--\n\tg.startWaiting()", "g.inFlight--"),
		"a cursor written before the action": at(simulated, "edge-gateway/gateway/drain.go",
			"sent := d.publish(ctx, messages)", "d.consume(ctx, messages)\n\tsent := d.publish(ctx, messages)"),
		"a stale rule after a change": at(scripts, "shared/sensorcache/sensorcache.go",
			"MaxAge = 10 * time.Second", "MaxAge = 10 * time.Hour"),
		"silence blamed during an outage": at(scripts, "shared/incident/silence.go",
			"return p.Lateness(now) > MaxProbeLateness", "return false"),
	}
}

// TestPlantedBugs plants each bug alone and wants it found, at night. By day it checks that
// each could be planted.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	root := must.Get(filepath.Abs("../../.."))(t)
	for name, bug := range bugs() { //nolint:paralleltest // each takes all cores
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(root, bug.file)
			source := string(must.Get(os.ReadFile(file))(t))
			if n := strings.Count(source, bug.is); n != 1 {
				t.Fatalf("%s has %q %d times", bug.file, bug.is, n)
			}
			if many() == "" {
				return
			}
			folder := t.TempDir()
			changed, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
			must.Do(t, os.WriteFile(changed, []byte(strings.Replace(source, bug.is, bug.becomes, 1)), 0o600))
			must.Do(t, os.WriteFile(overlay, must.Get(json.Marshal(map[string]any{"Replace": map[string]string{file: changed}}))(t), 0o600))
			test := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-run", "^"+bug.run+"$", bug.pkg)
			test.Dir = root
			test.Env = append(os.Environ(), "MODEL_SCRIPTS=", "RAPID_SHRINK=0s") // found as in CI, and not made short
			output, err := test.CombinedOutput()
			if err == nil {
				t.Errorf("nobody found it:\n%s", output)
			} else if !strings.Contains(string(output), "--- FAIL: "+bug.run) {
				t.Errorf("it does not build, or no test failed:\n%s", output)
			}
		})
	}
}
