package api

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// recipe is a section of docs/recipes.md.
type recipe struct {
	title, text string
	commands    []string          // its shell blocks
	files       map[string]string // the configurations that it links, by name
}

// recipes are the sections by their titles.
func recipes(t *testing.T) map[string]recipe {
	t.Helper()
	page := must.Get(os.ReadFile("../../docs/recipes.md"))(t)
	block, link := regexp.MustCompile("(?s)```sh\n(.*?)```"), regexp.MustCompile(`\]\(recipes/([a-z.]+\.(?:conf|ya?ml))\)`)
	found := map[string]recipe{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		r := recipe{title: title, text: section, files: map[string]string{}}
		for _, match := range block.FindAllStringSubmatch(section, -1) {
			r.commands = append(r.commands, match[1])
		}
		for _, match := range link.FindAllStringSubmatch(section, -1) {
			r.files[match[1]] = string(must.Get(os.ReadFile("../../docs/recipes/" + match[1]))(t))
		}
		found[title] = r
	}
	return found
}

func (r recipe) run(t *testing.T, folder string, environment ...string) []string {
	t.Helper()
	var said []string
	for _, command := range r.commands {
		var complaints bytes.Buffer
		shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
		shell.Dir, shell.Env, shell.Stderr = folder, append(os.Environ(), environment...), &complaints
		out, err := shell.Output()
		if err != nil {
			t.Fatalf("%s\n%v: %s%s", command, err, out, complaints.String())
		}
		said = append(said, string(out))
	}
	return said
}

// TestRecipes runs what docs/recipes.md tells people to do, or shows that the page says that it is not run.
func TestRecipes(t *testing.T) {
	t.Parallel()
	all := recipes(t)
	tests := map[string]func(*testing.T, recipe){
		"curl and jq": testShellRecipe, "Prometheus and Alertmanager": testPrometheusRecipe,
		"Grafana": testGrafanaRecipe, "Home Assistant": testHomeAssistantRecipe,
		"Telegraf": testTelegrafRecipe,
	}
	for title, r := range all {
		test, ok := tests[title]
		if !ok {
			t.Errorf("%s is not tested", title)
			continue
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
	must.Equal(t, "the page has recipes", len(tests), len(all))
}

// recipeRoom has a sensor at a temperature and one that was never heard of.
func recipeRoom(t *testing.T, s *testAPI, temperature float64) *testCustomer {
	t.Helper()
	a := s.customer(t)
	room := a.room(t, "Hall")
	for _, id := range []string{"esp32-7f3a", "silent"} {
		a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack 12","type":"T","room_id":%d}`, id, room))
	}
	s.reading(t, "esp32-7f3a", s.now(), temperature, 40)
	s.judge(t, "esp32-7f3a", s.now(), temperature)
	return a
}

// testTelegrafRecipe leaves files to edge-gateway/telegraftest, and runs the commands in a folder for the root.
func testTelegrafRecipe(t *testing.T, r recipe) {
	t.Helper()
	folder := t.TempDir()
	must.Do(t, errors.Join(
		os.MkdirAll(filepath.Join(folder, "etc/monitor-gateway"), 0o700), os.MkdirAll(filepath.Join(folder, "etc/telegraf/telegraf.d"), 0o700),
		os.WriteFile(filepath.Join(folder, "redfish.conf"), []byte(r.files["redfish.conf"]), 0o600),
		os.WriteFile(filepath.Join(folder, "bmcs.txt"), []byte("10.0.0.1\nbmc-2.example.net\n"), 0o600),
	))
	for i := range r.commands {
		r.commands[i] = strings.NewReplacer("/etc/", folder+"/etc/", "sudo systemctl", ":", "sudo ", "", "-o telegraf ", "").Replace(r.commands[i])
	}
	r.run(t, folder)
	for name, want := range map[string]string{
		"monitor-gateway/sources.json":     `^{"sources": \[{"name": "telegraf", "networks": \["192.168.1.5"\]}\]}\n$`,
		"telegraf/telegraf.d/redfish.conf": `(?s)^\[\[inputs.redfish]]\n  address = "https://10.0.0.1"\n.*\[\[inputs.redfish]]\n  address = "https://bmc-2.example.net"\n.*true\n$`,
	} {
		path := filepath.Join(folder, "etc", name)
		must.Equal(t, name+" is "+want, true, regexp.MustCompile(want).Match(must.Get(os.ReadFile(path))(t)))
		must.Equal(t, name, os.FileMode(0o600), must.Get(os.Stat(path))(t).Mode().Perm())
	}
	must.Contain(t, "telegraf.conf", r.files["telegraf.conf"],
		"/api/v1/telegraf", "json_timestamp_units", "non_retryable_statuscodes = [400, 413]")
	for _, name := range []string{"redfish.conf", "ipmi.conf", "snmp.conf", "mqtt.conf", "upsd.conf"} {
		must.Contain(t, name, r.files[name], "[[inputs.")
	}
}

func testShellRecipe(t *testing.T, r recipe) {
	t.Helper()
	tooltest.Program(t, "curl")
	tooltest.Program(t, "jq")
	s := newTestAPI(t)
	a := recipeRoom(t, s, 55)
	folder := t.TempDir()
	said := r.run(t, folder, "COLDAISLE_URL="+s.url, "EMAIL="+a.email, "PASSWORD="+a.password)
	for i, want := range []string{
		"^$", "^$", "esp32-7f3a\tRack 12\tcritical\t55\nsilent\tRack 12\tunreported\t\n", "Hall too_hot: Temperature above 50.0 °C",
		"node_id,timestamp,", "createAPIKey",
	} {
		if !regexp.MustCompile(want).MatchString(said[i]) {
			t.Errorf("%s\nsaid %q, want %q", r.commands[i], said[i], want)
		}
	}
	must.Equal(t, "commands", 6, len(said))
	for _, name := range []string{"coldaisle.key", "coldaisle.header"} {
		must.Equal(t, name, os.FileMode(0o600), must.Get(os.Stat(filepath.Join(folder, name)))(t).Mode().Perm())
	}
}

// testPrometheusRecipe has Debian's Prometheus scrape and fire by the recipe, and its Alertmanager mail and call.
func testPrometheusRecipe(t *testing.T, r recipe) {
	t.Helper()
	tooltest.Program(t, "promtool")
	tooltest.Program(t, "amtool")
	server, sender := tooltest.Program(t, "prometheus"), tooltest.Program(t, "prometheus-alertmanager")
	s := newTestAPI(t)
	a := recipeRoom(t, s, 55)
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	called := make(chan string, 100)
	webhook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		called <- string(body)
	}))
	t.Cleanup(webhook.Close)
	mailServer, mails := smtpSink(t)
	at, alerts := fmt.Sprint("127.0.0.1:", tooltest.FreePort(t)), fmt.Sprint("127.0.0.1:", tooltest.FreePort(t))
	// Only addresses, paths and times are other than in the recipe.
	local := strings.NewReplacer(
		"/etc/prometheus/coldaisle.key", write("coldaisle.key", a.key(t, `"scope":"read"`).text),
		"/etc/prometheus/smtp.password", write("smtp.password", "secret"),
		"scheme: https", "scheme: http", "coldaisle.example.com", strings.TrimPrefix(s.url, "http://"), "localhost:9093", alerts,
		"mail.example.com:587", mailServer+"\n  smtp_require_tls: false", "https://sms.example.com/alertmanager", webhook.URL,
		// A scrape may take as long as its interval, on a machine that has much to do.
		"scrape_interval: 30s", "scrape_interval: 3s", "evaluation_interval: 30s", "evaluation_interval: 1s", "group_wait: 30s", "group_wait: 100ms", "group_interval: 1m", "group_interval: 1s",
		"for: 5m", "for: 0s",
	)
	for name, content := range r.files {
		write(name, local.Replace(content))
	}
	r.run(t, folder)
	start(t, folder, sender, "--config.file=alertmanager.yml", "--storage.path=alerts", "--web.listen-address="+alerts, "--cluster.listen-address=")
	start(t, folder, server, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+at)

	var got []string // in whatever order they come
	expect := func(from <-chan string, parts ...string) {
		t.Helper()
		for deadline := time.After(5 * time.Minute); ; {
			if slices.ContainsFunc(got, func(one string) bool {
				return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(one, part) })
			}) {
				return
			}
			select {
			case one := <-from:
				got = append(got, one)
			case <-deadline:
				t.Fatalf("nothing with %q came: %.3000q", parts, got)
			}
		}
	}
	expect(called, `"alertname":"ColdaisleOpen"`, `too_hot in Hall, the warmest: Rack 12 at 55.0 °C, silent: Rack 12"`)
	expect(mails, "RCPT TO:<ops@example.com>", "Subject: [FIRING:1] ColdaisleIncident Hall", "too_hot in Hall, the warmest")

	results := func(query string) int {
		t.Helper()
		var answer struct {
			Data struct{ Result []any }
		}
		response := must.Get(http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(query)))(t) //nolint:bodyclose // below
		err := json.NewDecoder(response.Body).Decode(&answer)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %+v, %v", query, response.StatusCode, answer, err)
		}
		return len(answer.Data.Result)
	}
	// What the dashboard of the other recipe asks, there is.
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			must.Equal(t, target.Expr+" finds something", true, results(strings.ReplaceAll(target.Expr, "$room", ".*")) > 0)
		}
	}

	// Somebody takes the incident: nobody is told that it is over until it is.
	a.act(t, a.incidents(t, "")[0].ID, `"action":"take"`)
	must.Eventually(t, "ColdaisleOpen ends when somebody has taken the incident", func() bool { return results(`ALERTS{alertname="ColdaisleOpen"}`) == 0 })
	must.Equal(t, "the incident is over for Prometheus when somebody has taken it", 1, results(`ALERTS{alertname="ColdaisleIncident",alertstate="firing"}`))
	over := func(one string) bool {
		return strings.Contains(one, "[RESOLVED]") || strings.Contains(one, `"status":"resolved"`)
	}
	for len(mails) > 0 {
		got = append(got, <-mails)
	}
	if k := slices.IndexFunc(got, over); k >= 0 {
		t.Errorf("told that it is over while it lasts: %s", got[k])
	}
	s.judge(t, "esp32-7f3a", s.now(), 20)
	// It is over ten minutes after that.
	for _, table := range []string{"excursions", "room_incidents"} {
		s.execute(t, `UPDATE `+table+` SET start_time = start_time - interval '10 minutes', end_time = end_time - interval '10 minutes'`)
	}
	expect(mails, "Subject: [RESOLVED] ColdaisleIncident Hall")
	for len(called) > 0 {
		got = append(got, <-called)
	}
	told := slices.DeleteFunc(got, func(one string) bool { return !over(one) })
	must.Hold(t, len(told) == 1, "told %d times that it is over: %q", len(told), told)
}

func start(t *testing.T, folder, program string, arguments ...string) {
	t.Helper()
	var said bytes.Buffer
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Dir, command.Stdout, command.Stderr = folder, &said, &said
	must.Do(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("%s: %s", program, said.String())
		}
	})
}

// smtpSink takes mails, and gives each as what its sender said (RFC 5321).
func smtpSink(t *testing.T) (address string, mails <-chan string) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	taken := make(chan string, 100)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.SetDeadline(time.Now().Add(time.Minute))
			taken <- receiveMail(connection)
			_ = connection.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String(), taken
}

func receiveMail(connection net.Conn) string {
	answers := map[string]string{"EHLO": "250-sink\r\n250 AUTH PLAIN", "AUTH": "235 welcome", "DATA": "354 go on", "QUIT": "221 bye"}
	var said strings.Builder
	_, _ = io.WriteString(connection, "220 sink\r\n")
	content := false
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		_, _ = said.WriteString(lines.Text() + "\n")
		verb, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " ")
		if content && verb != "." {
			continue
		}
		content = verb == "DATA"
		_, _ = io.WriteString(connection, cmp.Or(answers[verb], "250 ok")+"\r\n")
	}
	return said.String()
}

// dashboard is what Grafana's dashboard JSON model has of what ours uses:
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
type dashboard struct {
	UID, Title, Timezone, Refresh string
	Tags                          []string
	Editable                      bool
	SchemaVersion                 int
	Time                          struct{ From, To string }
	Templating                    struct {
		List []struct {
			Name, Label, Type, Query, AllValue string
			Datasource                         dataSource
			Refresh                            int
			IncludeAll, Multi                  bool
			Current                            struct{}
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  dataSource
		GridPos     struct{ X, Y, W, H int }
		Options     struct{}
		FieldConfig struct {
			Defaults  struct{ Unit string }
			Overrides []struct{}
		}
		Targets []struct {
			RefID, Expr, LegendFormat string
			Datasource                dataSource
		}
	}
}

type dataSource struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(must.Get(os.ReadFile("../../docs/recipes/grafana-dashboard.json"))(t)))
	decoder.DisallowUnknownFields()
	must.Do(t, decoder.Decode(&d))
	return d
}

func notRun(t *testing.T, r recipe) {
	t.Helper()
	must.Contain(t, r.title, r.text, "*Not run: ")
	must.Equal(t, r.title+" has commands", 0, len(r.commands))
}

func testGrafanaRecipe(t *testing.T, r recipe) {
	t.Helper()
	notRun(t, r)
	d := readDashboard(t)
	// The fields of https://grafana.com/docs/grafana/latest/administration/provisioning/#data-sources.
	var sources []string
	for _, content := range r.files {
		var file struct {
			APIVersion  int `yaml:"apiVersion"`
			Datasources []struct {
				Name, UID, Type, Access, URL string
				JSONData                     struct {
					AuthMethod   string   `yaml:"auth_method"`
					AllowedHosts []string `yaml:"allowedHosts"`
				} `yaml:"jsonData"`
				SecureJSONData struct {
					BearerToken string `yaml:"bearerToken"`
				} `yaml:"secureJsonData"`
			}
		}
		decoder := yaml.NewDecoder(strings.NewReader(content))
		decoder.KnownFields(true)
		if err := decoder.Decode(&file); err != nil || file.APIVersion != 1 || len(file.Datasources) != 1 {
			t.Fatalf("%+v, %v", file, err)
		}
		sources = append(sources, file.Datasources[0].UID)
	}
	ids := map[int]bool{}
	for _, panel := range d.Panels {
		if !slices.Contains(sources, panel.Datasource.UID) || ids[panel.ID] || panel.GridPos.X+panel.GridPos.W > 24 || panel.GridPos.W == 0 || panel.GridPos.H == 0 {
			t.Errorf("panel %+v", panel)
		}
		ids[panel.ID] = true
	}
}

func testHomeAssistantRecipe(t *testing.T, r recipe) {
	t.Helper()
	notRun(t, r)
	// Of https://www.home-assistant.io/integrations/rest/: resource is "The resource or endpoint that contains the value",
	// headers "The headers for the requests", scan_interval "Define the refrequency to call the REST endpoint in seconds",
	// sensor "A list of sensors to create from the shared data", with what /integrations/sensor.rest has.
	var configuration struct {
		REST []struct {
			Resource     string
			Headers      map[string]string
			ScanInterval int `yaml:"scan_interval"`
			Sensor       []struct {
				Name              string
				UniqueID          string `yaml:"unique_id"`
				ValueTemplate     string `yaml:"value_template"`
				Availability      string // "Defines a template to get the available state"
				UnitOfMeasurement string `yaml:"unit_of_measurement"`
				DeviceClass       string `yaml:"device_class"`
				StateClass        string `yaml:"state_class"`
			}
		} `yaml:"rest"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(r.files["configuration.yaml"]))
	decoder.KnownFields(true)
	if err := decoder.Decode(&configuration); err != nil || len(configuration.REST) != 1 || len(configuration.REST[0].Sensor) != 2 {
		t.Fatalf("%+v, %v", configuration, err)
	}
	s := newTestAPI(t)
	a := recipeRoom(t, s, 24.3)
	asked := configuration.REST[0]
	address := must.Get(url.Parse(asked.Resource))(t)
	a.token = a.key(t, `"scope":"read"`).text
	answer := get[map[string]any](t, a, "GET", address.Path, "")
	for _, sensor := range asked.Sensor {
		field := strings.TrimSuffix(strings.TrimPrefix(sensor.ValueTemplate, "{{ value_json."), " }}")
		_, ok := answer[field].(float64)
		must.Hold(t, ok && field == sensor.DeviceClass, "%s: %v", sensor.ValueTemplate, answer)
		must.Contain(t, "a dead sensor is not shown", sensor.Availability, "value_json."+field+" is number", "as_timestamp(value_json.timestamp) < 600")
	}
}

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

// TestRecipesAlertRules runs promtool on the rules as readers copy them: steps of 30 s, changes at 10 and 20 minutes.
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
		"acknowledged, then worse": {
			always, "45x100", always, of{open: "1x20 stale _x39 1x40", taken: "_x21 1x39 stale"}, "1001 1111 0000",
		},
		"acknowledged, the scrape fails, acknowledged still": {
			"1x40 0x20 1x40", "45x40 stale _x19 45x40", "1x40 stale _x19 1x40",
			of{open: "1x20 stale", taken: "_x21 1x19 stale _x19 1x40"},
			"1000 1111 0000",
		},
		"acknowledged, then over": {
			always, "45x40 24x60", always, of{open: "1x20 stale", taken: "_x21 1x19 stale"}, "1000 1100 0000",
		},
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
				for i, matchers := range []string{
					`room="Hall",severity="page"`, `room="Hall",severity="ticket"`, `alertname="ColdaisleUnreachable"`,
				} {
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
			said, err := run.CombinedOutput()
			must.Hold(t, err == nil, "%v: %s", err, strings.TrimSpace(string(said)))
		})
	}
}
