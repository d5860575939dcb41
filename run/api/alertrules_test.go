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
	open, taken, silenced, late := hot("open"), hot("taken"), hot("silenced"), hot("late")
	silent, warning := incident("silent", "warning", "open"), incident("too_hot", "warning", "open")
	quiet := incident("silent", "warning", "silenced")
	type of map[string]string
	for name, test := range map[string]struct {
		scraped, temperature, up string
		incidents                of
		alerts                   string // pages, mails and unreachable ones that fire at 5, 15, 25 and 45 minutes
	}{
		"quiet":         {always, "24x100", always, nil, "0000 0000 0000"},
		"node dies hot": {always, "45x20 stale", "1x20 0x80", of{open: always, silent: "_x35 1x65"}, "1111 1122 0000"},
		"scrape fails and returns": {
			"1x20 0x40 1x40", "45x20 stale _x39 45x40", "1x20 stale _x39 1x40", of{open: "1x20 stale _x39 1x40"}, "1111 1111 0010",
		},
		"over while the scrape fails": {
			"1x20 0x40 1x40", "45x20 stale _x39 24x40", "1x20 stale _x39 1x40", of{open: "1x20 stale"}, "1110 1110 0010",
		},
		"over, then the scrape fails": {"1x40 0x60", "45x20 24x20 stale", "1x40 stale", of{open: "1x20 stale"}, "1000 1000 0001"},
		"acknowledged, then worse":    {always, "45x100", always, of{open: "1x20 stale _x39 1x40", taken: "_x21 1x39 stale"}, "1001 1111 0000"},
		"acknowledged, the scrape fails, acknowledged still": {
			"1x40 0x20 1x40", "45x40 stale _x19 45x40", "1x40 stale _x19 1x40", of{open: "1x20 stale", taken: "_x21 1x19 stale _x19 1x40"}, "1000 1111 0000",
		},
		"acknowledged, then over":        {always, "45x40 24x60", always, of{open: "1x20 stale", taken: "_x21 1x19 stale"}, "1000 1100 0000"},
		"begins and ends in maintenance": {always, "45x40 24x60", always, of{silenced: "1x40 stale"}, "0000 0000 0000"},
		"over, another came late":        {always, "45x40 24x60", always, of{open: "1x40 stale", late: always}, "1100 1100 0000"},
		"in maintenance from 10 to 30 minutes, hot throughout": {
			always, "45x100", always, of{open: "1x20 stale _x39 1x40", silenced: "_x21 1x39 stale"}, "1001 1111 0000",
		},
		"a sensor falls silent in maintenance":  {always, "24x20 stale", "1x20 0x80", of{quiet: "_x21 1x79"}, "0000 0000 0000"},
		"one taken, another of the room begins": {always, "45x100", always, of{taken: always, open: "_x21 1x79"}, "0111 0111 0000"},
		"a warning is mailed":                   {always, "28x100", always, of{warning: always}, "0000 1111 0000"},
		"recovers":                              {always, "45x20 24x80", always, of{open: "1x20 stale"}, "1000 1000 0000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			series := []promSeries{{scrape, test.scraped}, {temperature, test.temperature}, {sensorUp, test.up}}
			for name, values := range test.incidents {
				series = append(series, promSeries{name, values})
			}
			var queries []promQuery
			for k, at := range []string{"5m", "15m", "25m", "45m"} {
				for i, matchers := range []string{`room="Hall",severity="page"`, `room="Hall",severity="ticket"`, `alertname="ColdaisleUnreachable"`} {
					expr := `count(ALERTS{alertstate="firing",` + matchers + `}) or vector(0)`
					queries = append(queries, promQuery{expr, at, []promSample{{"{}", int(test.alerts[5*i+k] - '0')}}})
				}
			}
			folder := t.TempDir()
			content := must.Get(yaml.Marshal(map[string]any{
				"rule_files": []string{"coldaisle.rules.yml"}, "evaluation_interval": "30s",
				"tests": []map[string]any{{"interval": "30s", "input_series": series, "promql_expr_test": queries}},
			}))(t)
			for name, content := range map[string]string{"coldaisle.rules.yml": rules, "test.yml": string(content)} {
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
