// Package telegraftest runs the configurations of docs/recipes.md with the real Telegraf. It is a
// module of its own, because Telegraf needs hundreds; the nightly runs it.
package telegraftest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/influxdata/telegraf/agent"
	"github.com/influxdata/telegraf/config"
	_ "github.com/influxdata/telegraf/plugins/inputs/ipmi_sensor"
	_ "github.com/influxdata/telegraf/plugins/inputs/mqtt_consumer"
	_ "github.com/influxdata/telegraf/plugins/inputs/redfish"
	_ "github.com/influxdata/telegraf/plugins/inputs/snmp"
	_ "github.com/influxdata/telegraf/plugins/inputs/upsd"
	_ "github.com/influxdata/telegraf/plugins/outputs/http"
	_ "github.com/influxdata/telegraf/plugins/parsers/json"
	_ "github.com/influxdata/telegraf/plugins/serializers/json"
)

// recording is what the gateway's tests replay.
const recording = "../gateway/testdata/telegraf.jsonl"

var update = flag.Bool("update", false, "write the recording")

// gateway answers as Coldaisle's does, once for each of its statuses, and then 202.
type gateway struct {
	mu       sync.Mutex
	statuses []int
	refused  []byte // the body that it answered with 413
	bodies   [][]byte
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	defer g.mu.Unlock()
	status := http.StatusAccepted
	if len(g.statuses) > 0 {
		status, g.statuses = g.statuses[0], g.statuses[1:]
	}
	switch status {
	case http.StatusAccepted:
		g.bodies = append(g.bodies, body)
	case http.StatusRequestEntityTooLarge:
		g.refused = body
	}
	w.WriteHeader(status)
}

// metrics returns the names of what was taken.
func (g *gateway) metrics(t *testing.T) (names []string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, body := range g.bodies {
		var batch struct{ Metrics []struct{ Name string } }
		if err := json.Unmarshal(body, &batch); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for _, m := range batch.Metrics {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestRecipes runs the files of docs/recipes.md with Telegraf and the programs that they are
// for. Telegraf sends again what was answered with 503, and drops what was answered with 413.
func TestRecipes(t *testing.T) {
	site := &gateway{statuses: []int{http.StatusServiceUnavailable, http.StatusServiceUnavailable}}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	bmc := httptest.NewTLSServer(http.HandlerFunc(redfish))
	t.Cleanup(bmc.Close)
	snmp, mqtt, upsd := snmpd(t), mosquitto(t), nut(t)
	settings := strings.NewReplacer(
		"http://monitor-gateway.local:8080", server.URL, `"30s"`, `"1s"`, `"10s"`, `"1s"`, "https://bmc1.example.com", bmc.URL,
		"192.168.1.30:161", snmp, "127.0.0.1:1883", mqtt, "port = 3493", "port = "+upsd,
	)
	cfg := config.NewConfig()
	cfg.Agent.OmitHostname = true // the recording is the same on every machine
	files := recipe(t)
	var all strings.Builder
	for _, name := range []string{"telegraf.conf", "redfish.conf", "snmp.conf", "mqtt.conf", "upsd.conf"} {
		all.WriteString(settings.Replace(files[name]))
	}
	if err := cfg.LoadConfigData([]byte(all.String()), "recipes"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := agent.NewAgent(cfg).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	want := []string{"apc_rpdu2_probe", "geist_probe", "mqtt_consumer", "redfish_thermal_fans", "redfish_thermal_temperatures", "upsd"}
	wait(t, "metrics of all", func() bool {
		publish(t, mqtt, "zigbee2mqtt/rack12", `{"battery":97,"humidity":41.5,"linkquality":120,"temperature":22.31}`)
		publish(t, mqtt, "tele/closet/SENSOR", `{"Time":"2026-11-20T03:00:00","AM2301":{"Temperature":23.4,"Humidity":38.0,"DewPoint":8.3},"DS18B20":{"Id":"0316","Temperature":19.9},"TempUnit":"C"}`)
		return slices.Equal(site.metrics(t), want)
	})
	site.mu.Lock()
	taken := slices.Clone(site.bodies)
	site.statuses = []int{http.StatusRequestEntityTooLarge}
	site.mu.Unlock()
	wait(t, "batches after a refused one", func() bool {
		site.mu.Lock()
		defer site.mu.Unlock()
		if slices.ContainsFunc(site.bodies, func(b []byte) bool { return site.refused != nil && string(b) == string(site.refused) }) {
			t.Fatal("a refused batch was sent again")
		}
		return site.refused != nil && len(site.bodies) > len(taken)+2
	})
	if *update {
		var lines strings.Builder
		for _, body := range taken {
			fmt.Fprintf(&lines, "%s\n", strings.TrimSpace(string(body)))
		}
		if err := os.WriteFile(recording, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// recipe returns the files of the page's section.
func recipe(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, match := range regexp.MustCompile("(?s)```toml\n# (.*?)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		files[match[1]] = match[2]
	}
	if len(files) < 6 {
		t.Fatalf("the page has %d files", len(files))
	}
	return files
}

// redfish answers as a BMC does, with what Telegraf asks for.
func redfish(w http.ResponseWriter, r *http.Request) {
	answer, ok := map[string]string{
		"/redfish/v1/Systems/System.Embedded.1": `{"HostName":"web1","Links":{"Chassis":[{"@odata.id":"/redfish/v1/Chassis/1"}]}}`,
		"/redfish/v1/Chassis/1": `{"Id":"1","Location":{"PostalAddress":{"DataCenter":"dc1","Room":"hall"},"Placement":{"Rack":"C7","Row":"C"}},
			"Thermal":{"@odata.id":"/redfish/v1/Chassis/1/Thermal"},"Power":{"@odata.id":"/redfish/v1/Chassis/1/Power"}}`,
		"/redfish/v1/Chassis/1/Thermal": `{
			"Temperatures":[
				{"MemberId":"0","Name":"System Board Inlet Temp","ReadingCelsius":21.5,"UpperThresholdCritical":42,"Status":{"State":"Enabled","Health":"OK"}},
				{"MemberId":"1","Name":"CPU1 Temp","ReadingCelsius":64,"Status":{"State":"Enabled","Health":"OK"}}],
			"Fans":[{"MemberId":"2","Name":"Fan1","Reading":8800,"ReadingUnits":"RPM","Status":{"State":"Enabled","Health":"OK"}}]}`,
	}[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = io.WriteString(w, answer)
}

// snmpd serves the probes of a PDU and returns its address.
func snmpd(t *testing.T) string {
	t.Helper()
	folder, port := t.TempDir(), freePort(t)
	// A pass script answers -g OID, -n OID with OID, type and value of that one, or of the next.
	script := filepath.Join(folder, "pdu.sh")
	write(t, script, `#!/bin/sh
next() { awk -v asked="$2" -v exact="$1" '
  function before(a, b,  x, y, n, m, i) { n = split(a, x, "."); m = split(b, y, "."); for (i = 1; i <= n && i <= m; i++) if (x[i] != y[i]) return x[i]+0 < y[i]+0; return n < m }
  exact ? $1 == asked : before(asked, $1) { print $1; print $2; $1 = $2 = ""; sub(/^ +/, ""); print; exit }' `+folder+`/values; }
case $1 in -g) next 1 "$2" ;; -n) next 0 "$2" ;; esac
`)
	write(t, filepath.Join(folder, "values"), `.1.3.6.1.4.1.318.1.1.26.10.2.2.1.3.1 string Rack 7 door
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.8.1 integer 224
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.10.1 integer 39
.1.3.6.1.4.1.21239.5.1.4.1.3.1 string Aisle
.1.3.6.1.4.1.21239.5.1.4.1.5.1 integer 187
`)
	write(t, filepath.Join(folder, "snmpd.conf"), fmt.Sprintf(`rocommunity public 127.0.0.1
pass .1.3.6.1.4.1.318 /bin/sh %[1]s
pass .1.3.6.1.4.1.21239 /bin/sh %[1]s
`, script))
	start(t, []string{"MIBS="}, "snmpd", "-f", "-Lo", "-C", "-c", filepath.Join(folder, "snmpd.conf"), "udp:127.0.0.1:"+port)
	return "127.0.0.1:" + port
}

// mosquitto returns the address of a broker.
func mosquitto(t *testing.T) string {
	t.Helper()
	port := freePort(t)
	path := filepath.Join(t.TempDir(), "mosquitto.conf")
	write(t, path, "listener "+port+" 127.0.0.1\nallow_anonymous true\n")
	start(t, nil, "mosquitto", "-c", path)
	address := "127.0.0.1:" + port
	listens(t, address)
	return address
}

func publish(t *testing.T, address, topic, message string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	if out, err := exec.CommandContext(t.Context(), "mosquitto_pub", "-p", port, "-h", "127.0.0.1", "-t", topic, "-m", message).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// nut returns the port of a NUT that has one UPS.
func nut(t *testing.T) string {
	t.Helper()
	folder, port := t.TempDir(), freePort(t)
	write(t, filepath.Join(folder, "ups1.dev"), `ups.status: OL
device.model: Smart-UPS
device.serial: AS1
battery.runtime: 1200
ups.firmware: 1
ups.temperature: 31.5
ambient.temperature: 22.5
ambient.humidity: 37.0
`)
	write(t, filepath.Join(folder, "ups.conf"), "[ups1]\ndriver = dummy-ups\nport = "+filepath.Join(folder, "ups1.dev")+"\nmode = dummy-once\n")
	write(t, filepath.Join(folder, "upsd.conf"), "LISTEN 127.0.0.1 "+port+"\n")
	write(t, filepath.Join(folder, "upsd.users"), "")
	environment := []string{"NUT_CONFPATH=" + folder, "NUT_STATEPATH=" + folder, "NUT_ALTPIDPATH=" + folder}
	start(t, environment, "/lib/nut/dummy-ups", "-D", "-a", "ups1", "-u", "root")
	wait(t, "the driver", func() bool { _, err := os.Stat(filepath.Join(folder, "dummy-ups-ups1")); return err == nil })
	start(t, environment, "/lib/nut/upsd", "-D", "-u", "root")
	listens(t, "127.0.0.1:"+port)
	return port
}

// start runs a program until the test ends.
func start(t *testing.T, environment []string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%v: it is in one of Debian's packages snmpd, mosquitto, mosquitto-clients, nut-server", err)
	}
	program := exec.CommandContext(t.Context(), name, args...)
	program.Env = append(os.Environ(), environment...)
	var said strings.Builder
	program.Stdout, program.Stderr = &said, &said
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
		if t.Failed() {
			t.Logf("%s: %s", name, said.String())
		}
	})
}

func listens(t *testing.T, address string) {
	t.Helper()
	wait(t, address, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	return port
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
