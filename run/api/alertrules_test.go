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
type promSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type promQuery struct {
	Expr     string       `yaml:"expr"`
	EvalTime string       `yaml:"eval_time"`
	Samples  []promSample `yaml:"exp_samples"`
}

type promSample struct {
	Labels string `yaml:"labels"`
	Value  int    `yaml:"value"`
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
	for _, test := range []struct {
		name          string
		series        map[string]string
		pages, mailed alerts
		unreachable   alerts
	}{
		{
			name: "quiet", series: map[string]string{scrape: always, temperature: "24x100", sensorUp: always},
		},
		{
			name: "node dies hot",
			series: map[string]string{
				scrape: always, temperature: "45x20 stale", sensorUp: "1x20 0x80", hot("open"): always, incident("silent", "warning", "open"): "_x35 1x65",
			},
			pages: alerts{1, 1, 1, 1}, mailed: alerts{1, 1, 2, 2},
		},
		{
			name:   "scrape fails and returns",
			series: map[string]string{scrape: "1x20 0x40 1x40", temperature: "45x20 stale _x39 45x40", sensorUp: "1x20 stale _x39 1x40", hot("open"): "1x20 stale _x39 1x40"},
			pages:  alerts{1, 1, 1, 1}, mailed: alerts{1, 1, 1, 1}, unreachable: alerts{0, 0, 1, 0},
		},
		{
			name:   "over while the scrape fails",
			series: map[string]string{scrape: "1x20 0x40 1x40", temperature: "45x20 stale _x39 24x40", sensorUp: "1x20 stale _x39 1x40", hot("open"): "1x20 stale"},
			pages:  alerts{1, 1, 1, 0}, mailed: alerts{1, 1, 1, 0}, unreachable: alerts{0, 0, 1, 0},
		},
		{
			name:   "over, then the scrape fails",
			series: map[string]string{scrape: "1x40 0x60", temperature: "45x20 24x20 stale", sensorUp: "1x40 stale", hot("open"): "1x20 stale"},
			pages:  alerts{1, 0, 0, 0}, mailed: alerts{1, 0, 0, 0}, unreachable: alerts{0, 0, 0, 1},
		},
		{
			name: "acknowledged, then worse",
			series: map[string]string{
				scrape: always, temperature: "45x100", sensorUp: always, hot("open"): "1x20 stale _x39 1x40", hot("taken"): "_x21 1x39 stale",
			},
			pages: alerts{1, 0, 0, 1}, mailed: alerts{1, 1, 1, 1},
		},
		{
			name: "acknowledged, the scrape fails, acknowledged still",
			series: map[string]string{
				scrape: "1x40 0x20 1x40", temperature: "45x40 stale _x19 45x40", sensorUp: "1x40 stale _x19 1x40",
				hot("open"): "1x20 stale", hot("taken"): "_x21 1x19 stale _x19 1x40",
			},
			pages: alerts{1, 0, 0, 0}, mailed: alerts{1, 1, 1, 1},
		},
		{
			name: "acknowledged, then over",
			series: map[string]string{
				scrape: always, temperature: "45x40 24x60", sensorUp: always, hot("open"): "1x20 stale", hot("taken"): "_x21 1x19 stale",
			},
			pages: alerts{1, 0, 0, 0}, mailed: alerts{1, 1, 0, 0},
		},
		{
			name:   "begins and ends in maintenance",
			series: map[string]string{scrape: always, temperature: "45x40 24x60", sensorUp: always, hot("silenced"): "1x40 stale"},
		},
		{
			name:   "over, another came late",
			series: map[string]string{scrape: always, temperature: "45x40 24x60", sensorUp: always, hot("open"): "1x40 stale", hot("late"): always},
			pages:  alerts{1, 1, 0, 0}, mailed: alerts{1, 1, 0, 0},
		},
		{
			name: "in maintenance from 10 to 30 minutes, hot throughout",
			series: map[string]string{
				scrape: always, temperature: "45x100", sensorUp: always, hot("open"): "1x20 stale _x39 1x40", hot("silenced"): "_x21 1x39 stale",
			},
			pages: alerts{1, 0, 0, 1}, mailed: alerts{1, 1, 1, 1},
		},
		{
			name: "a sensor falls silent in maintenance",
			series: map[string]string{
				scrape: always, temperature: "24x20 stale", sensorUp: "1x20 0x80", incident("silent", "warning", "silenced"): "_x21 1x79",
			},
		},
		{
			name: "one taken, another of the room begins",
			series: map[string]string{
				scrape: always, temperature: "45x100", sensorUp: always, hot("taken"): always, hot("open"): "_x21 1x79",
			},
			pages: alerts{0, 1, 1, 1}, mailed: alerts{0, 1, 1, 1},
		},
		{
			name: "a warning is mailed",
			series: map[string]string{
				scrape: always, temperature: "28x100", sensorUp: always, incident("too_hot", "warning", "open"): always,
			},
			mailed: alerts{1, 1, 1, 1},
		},
		{
			name:   "recovers",
			series: map[string]string{scrape: always, temperature: "45x20 24x80", sensorUp: always, hot("open"): "1x20 stale"},
			pages:  alerts{1, 0, 0, 0}, mailed: alerts{1, 0, 0, 0},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var series []promSeries
			for name, values := range test.series {
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
