package api

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// promSeries and promQuery are parts of promtool's format for unit tests:
// https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/.
type promSeries struct{ Series, Values string }

type promQuery struct {
	Expr     string
	EvalTime string       `yaml:"eval_time"`
	Samples  []promSample `yaml:"exp_samples"`
}

type promSample struct {
	Labels string
	Value  int
}

// TestRecipesAlertRules runs promtool on the rules of docs/recipes.md, as readers copy
// them, in the cases in which a wrong alert, or a wrong end of one, would cost trust. Each
// step is 30 seconds; something happens at 10 and at 20 minutes.
func TestRecipesAlertRules(t *testing.T) {
	t.Parallel()
	promtool := tooltest.Program(t, "promtool")
	rules := recipes(t)["Prometheus and Alertmanager"].files["coldaisle.rules.yml"]
	const (
		scrape      = `up{job="coldaisle",instance="c"}`
		temperature = `coldaisle_temperature_celsius{job="coldaisle",instance="c",node_id="n",sensor="Rack 12",room="Hall",gateway=""}`
		sensorUp    = `coldaisle_sensor_up{job="coldaisle",instance="c",node_id="n",sensor="Rack 12",room="Hall",gateway=""}`
		always      = "1x100"
	)
	incident := func(cause, severity, state string) string {
		return fmt.Sprintf(`coldaisle_incidents{job="coldaisle",instance="c",room="Hall",cause=%q,severity=%q,state=%q}`, cause, severity, state)
	}
	hot := func(state string) string { return incident("too_hot", "critical", state) }
	// alerts counts those that fire at 5, 15, 25 and 45 minutes.
	type alerts [4]int
	never, whole := alerts{}, alerts{1, 1, 1, 1}
	for _, test := range []struct {
		name                       string
		scraped, temperature, up   string
		incidents                  map[string]string
		pages, mailed, unreachable alerts
	}{
		{"quiet", always, "24x100", always, nil, never, never, never},
		{
			"node dies hot", always, "45x20 stale", "1x20 0x80",
			map[string]string{hot("open"): always, incident("silent", "warning", "open"): "_x35 1x65"}, whole, alerts{1, 1, 2, 2}, never,
		},
		{
			"scrape fails and returns", "1x20 0x40 1x40", "45x20 stale _x39 45x40", "1x20 stale _x39 1x40",
			map[string]string{hot("open"): "1x20 stale _x39 1x40"}, whole, whole, alerts{0, 0, 1, 0},
		},
		{
			"over while the scrape fails", "1x20 0x40 1x40", "45x20 stale _x39 24x40", "1x20 stale _x39 1x40",
			map[string]string{hot("open"): "1x20 stale"}, alerts{1, 1, 1, 0}, alerts{1, 1, 1, 0}, alerts{0, 0, 1, 0},
		},
		{
			"over, then the scrape fails", "1x40 0x60", "45x20 24x20 stale", "1x40 stale",
			map[string]string{hot("open"): "1x20 stale"}, alerts{1, 0, 0, 0}, alerts{1, 0, 0, 0}, alerts{0, 0, 0, 1},
		},
		{
			"acknowledged, then worse", always, "45x100", always,
			map[string]string{hot("open"): "1x20 stale _x39 1x40", hot("taken"): "_x21 1x39 stale"}, alerts{1, 0, 0, 1}, whole, never,
		},
		{
			"acknowledged, the scrape fails, acknowledged still", "1x40 0x20 1x40", "45x40 stale _x19 45x40", "1x40 stale _x19 1x40",
			map[string]string{hot("open"): "1x20 stale", hot("taken"): "_x21 1x19 stale _x19 1x40"}, alerts{1, 0, 0, 0}, whole, never,
		},
		{
			"acknowledged, then over", always, "45x40 24x60", always,
			map[string]string{hot("open"): "1x20 stale", hot("taken"): "_x21 1x19 stale"}, alerts{1, 0, 0, 0}, alerts{1, 1, 0, 0}, never,
		},
		{
			"begins and ends in maintenance", always, "45x40 24x60", always,
			map[string]string{hot("silenced"): "1x40 stale"}, never, never, never,
		},
		{
			"over, another came late", always, "45x40 24x60", always,
			map[string]string{hot("open"): "1x40 stale", hot("late"): always}, alerts{1, 1, 0, 0}, alerts{1, 1, 0, 0}, never,
		},
		{
			"in maintenance from 10 to 30 minutes, hot throughout", always, "45x100", always,
			map[string]string{hot("open"): "1x20 stale _x39 1x40", hot("silenced"): "_x21 1x39 stale"}, alerts{1, 0, 0, 1}, whole, never,
		},
		{
			"a sensor falls silent in maintenance", always, "24x20 stale", "1x20 0x80",
			map[string]string{incident("silent", "warning", "silenced"): "_x21 1x79"}, never, never, never,
		},
		{
			"one taken, another of the room begins", always, "45x100", always,
			map[string]string{hot("taken"): always, hot("open"): "_x21 1x79"}, alerts{0, 1, 1, 1}, alerts{0, 1, 1, 1}, never,
		},
		{
			"a warning is mailed", always, "28x100", always,
			map[string]string{incident("too_hot", "warning", "open"): always}, never, whole, never,
		},
		{
			"recovers", always, "45x20 24x80", always,
			map[string]string{hot("open"): "1x20 stale"}, alerts{1, 0, 0, 0}, alerts{1, 0, 0, 0}, never,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			series := []promSeries{{scrape, test.scraped}, {temperature, test.temperature}, {sensorUp, test.up}}
			for name, values := range test.incidents {
				series = append(series, promSeries{name, values})
			}
			var queries []promQuery
			for k, at := range []string{"5m", "15m", "25m", "45m"} {
				for matchers, want := range map[string]int{
					`room="Hall",severity="page"`: test.pages[k], `room="Hall",severity="ticket"`: test.mailed[k], `alertname="ColdaisleUnreachable"`: test.unreachable[k],
				} {
					expr := `count(ALERTS{alertstate="firing",` + matchers + `}) or vector(0)`
					queries = append(queries, promQuery{Expr: expr, EvalTime: at, Samples: []promSample{{"{}", want}}})
				}
			}
			folder := t.TempDir()
			test := must.Get(yaml.Marshal(map[string]any{
				"rule_files": []string{"coldaisle.rules.yml"}, "evaluation_interval": "30s",
				"tests": []map[string]any{{"interval": "30s", "input_series": series, "promql_expr_test": queries}},
			}))(t)
			for name, content := range map[string]string{"coldaisle.rules.yml": rules, "test.yml": string(test)} {
				must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
			}
			run := exec.CommandContext(t.Context(), promtool, "test", "rules", "test.yml")
			run.Dir = folder
			if said, err := run.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, strings.TrimSpace(string(said)))
			}
		})
	}
}
