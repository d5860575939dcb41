// Package telegraftest runs the configurations of docs/recipes with the real Telegraf. It is a
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
	"github.com/influxdata/telegraf/selfstat"
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

// TestRecipes runs the files of docs/recipes with Telegraf and the programs that they are
// for. Telegraf sends again what was answered with 503, and drops what was answered with 413.
func TestRecipes(t *testing.T) {
	site := &gateway{statuses: []int{http.StatusServiceUnavailable, http.StatusServiceUnavailable}}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	redfishBMC := httptest.NewTLSServer(http.HandlerFunc(redfish))
	t.Cleanup(redfishBMC.Close)
	snmp, mqtt, upsd := snmpd(t, `.1.3.6.1.4.1.318.1.1.26.10.2.2.1.3.1 string Rack 7 door
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.3.2 string Rack 8 door
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.3.3 string Rack 7 door
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.6.1 integer 2
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.6.2 integer 3
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.6.3 integer 2
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.8.1 integer 224
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.8.2 integer -1
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.8.3 integer 231
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.10.1 integer 39
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.10.2 integer -1
.1.3.6.1.4.1.318.1.1.26.10.2.2.1.10.3 integer 37
.1.3.6.1.4.1.21239.5.1.4.1.3.1 string Aisle
.1.3.6.1.4.1.21239.5.1.4.1.4.1 integer 1
.1.3.6.1.4.1.21239.5.1.4.1.5.1 integer 187
`), mosquitto(t, freePort(t)), nut(t, 1)
	ipmi := bmc(t)
	settings := strings.NewReplacer(
		"http://monitor-gateway.local:8080", server.URL, `"30s"`, `"1s"`, `"10s"`, `"1s"`, "https://bmc1.example.com", redfishBMC.URL,
		"192.168.1.30:161", snmp, "192.168.1.20", ipmi, "127.0.0.1:1883", mqtt, "port = 3493", "port = "+upsd,
	)
	t.Cleanup(telegraf(t, recipes(t, settings, "telegraf", "redfish", "ipmi", "snmp", "mqtt", "upsd")))
	want := []string{
		"apc_rpdu2_probe", "geist_probe", "ipmi_sensor", "mqtt_consumer", "redfish_thermal_fans", "redfish_thermal_temperatures", "upsd",
	}
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
		do(t, os.WriteFile(recording, []byte(lines.String()), 0o600))
	}
}

// Telegraf starts before its broker, and while the gateway is away it takes more messages than the 1,000 of its
// default: it would give those that wait at the broker the time at which the gateway is back.
func TestMQTTWhileOthersAreAway(t *testing.T) {
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(away.Close)
	port := freePort(t)
	settings := strings.NewReplacer("http://monitor-gateway.local:8080", away.URL, `"30s"`, `"1s"`, `"10s"`, `"1s"`, "127.0.0.1:1883", "127.0.0.1:"+port)
	t.Cleanup(telegraf(t, recipes(t, settings, "telegraf", "mqtt")))
	broker, before := mosquitto(t, port), received()
	wait(t, "messages", func() bool {
		publish(t, broker, "zigbee2mqtt/rack12", strings.Repeat("{\"temperature\":22.31}\n", 100))
		return received() > before+1000
	})
}

// received is how many messages of MQTT Telegraf has taken.
func received() (count int64) {
	for _, m := range selfstat.Metrics() {
		if value, ok := m.GetField("messages_received"); ok {
			count, _ = value.(int64)
		}
	}
	return count
}

// recipes returns recipes with settings for a test.
func recipes(t *testing.T, settings *strings.Replacer, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		file, err := os.ReadFile("../../docs/recipes/" + name + ".conf")
		do(t, err)
		all.WriteString(settings.Replace(string(file)))
	}
	return all.String()
}

// telegraf runs Telegraf until it is stopped, which sends what it has.
func telegraf(t *testing.T, configuration string) (stop func()) {
	t.Helper()
	cfg := config.NewConfig()
	cfg.Agent.OmitHostname = true // the recording is the same on every machine
	do(t, cfg.LoadConfigData([]byte(configuration), "recipes"))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := agent.NewAgent(cfg).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
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

// snmpd serves values of PDUs, lines of OID, type and value in the order of the OIDs, and returns its address.
func snmpd(t *testing.T, values string) string {
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
	write(t, filepath.Join(folder, "values"), values)
	write(t, filepath.Join(folder, "snmpd.conf"), fmt.Sprintf(`rocommunity public 127.0.0.1
pass .1.3.6.1.4.1.318 /bin/sh %[1]s
pass .1.3.6.1.4.1.21239 /bin/sh %[1]s
`, script))
	start(t, []string{"MIBS="}, "snmpd", "-f", "-Lo", "-C", "-c", filepath.Join(folder, "snmpd.conf"), "udp:127.0.0.1:"+port)
	return "127.0.0.1:" + port
}

// mosquitto returns the address of a broker.
func mosquitto(t *testing.T, port string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mosquitto.conf")
	write(t, path, "listener "+port+" 127.0.0.1\nallow_anonymous true\n")
	start(t, nil, "mosquitto", "-c", path)
	address := "127.0.0.1:" + port
	listens(t, address)
	return address
}

// publish sends a message for each line.
func publish(t *testing.T, address, topic, messages string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	publisher := exec.CommandContext(t.Context(), "mosquitto_pub", "-p", port, "-h", "127.0.0.1", "-t", topic, "-l")
	publisher.Stdin = strings.NewReader(messages)
	if out, err := publisher.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// nut returns the port of a NUT that has so many UPSs.
func nut(t *testing.T, count int) string {
	t.Helper()
	folder, port := t.TempDir(), freePort(t)
	environment := []string{"NUT_CONFPATH=" + folder, "NUT_STATEPATH=" + folder, "NUT_ALTPIDPATH=" + folder}
	write(t, filepath.Join(folder, "ups.dev"), `ups.status: OL
device.model: Smart-UPS
device.serial: AS1
battery.runtime: 1200
ups.firmware: 1
ups.temperature: 31.5
ambient.temperature: 22.5
ambient.humidity: 37.0
`)
	var drivers strings.Builder
	for i := range count {
		fmt.Fprintf(&drivers, "[ups%d]\ndriver = dummy-ups\nport = %s\nmode = dummy-once\n", i+1, filepath.Join(folder, "ups.dev"))
	}
	write(t, filepath.Join(folder, "ups.conf"), drivers.String())
	write(t, filepath.Join(folder, "upsd.conf"), "LISTEN 127.0.0.1 "+port+"\n")
	write(t, filepath.Join(folder, "upsd.users"), "")
	for i := range count {
		name := fmt.Sprintf("ups%d", i+1)
		start(t, environment, "/lib/nut/dummy-ups", "-D", "-a", name, "-u", "root")
		wait(t, "the driver", func() bool { _, err := os.Stat(filepath.Join(folder, "dummy-ups-"+name)); return err == nil })
	}
	start(t, environment, "/lib/nut/upsd", "-D", "-u", "root")
	listens(t, "127.0.0.1:"+port)
	return port
}

// bmc runs OpenIPMI's simulator of a BMC, with two temperatures and a fan, and returns its
// address. Telegraf calls the specified port, so that it needs an address of its own.
func bmc(t *testing.T) string {
	t.Helper()
	const address = "127.0.0.20"
	folder := t.TempDir()
	write(t, filepath.Join(folder, "lan.conf"), `name "bmc"
set_working_mc 0x20
startlan 1
addr `+address+` 623
priv_limit admin
allowed_auths_admin md5
guid a123456789abcdefa123456789abcdef
endlan
user 2 true "monitor" "password" admin 10 md5
`)
	commands := "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n"
	for i, s := range []struct {
		name                      string
		entity, kind, unit, scale byte // as in table 43-1 of the IPMI 2.0 specification
		value                     int
	}{{"Inlet Temp", 0x37, 1, 1, 1, 23}, {"CPU1 Temp", 3, 1, 1, 1, 64}, {"Fan1", 0x1d, 4, 18, 100, 88}} {
		record := []byte{0x20, 0, byte(i + 1), s.entity, 1, 0x7f, 0x68, s.kind, 1}
		record = append(record, 0, 0, 0, 0, 0, 0, 0, s.unit, 0, 0, s.scale, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0)
		record = append(append(record, make([]byte, 11)...), 0xc0|byte(len(s.name)))
		record = append(record, s.name...)
		none := strings.Repeat("0", 15)
		commands += fmt.Sprintf("sensor_add 0x20 0 %[1]d %[2]d 1\nsensor_set_value 0x20 0 %[1]d %[3]d 0\n"+
			"sensor_set_event_support 0x20 0 %[1]d enable scanning per-state %[4]s %[4]s %[4]s %[4]s\n", i+1, s.kind, s.value, none)
		commands += fmt.Sprintf("main_sdr_add 0x20 % #x\n", append([]byte{0, 0, 0x51, 1, byte(len(record))}, record...))
	}
	write(t, filepath.Join(folder, "bmc.emu"), commands+"mc_enable 0x20\n")
	start(t, nil, "ipmi_sim", "-n", "-c", filepath.Join(folder, "lan.conf"), "-f", filepath.Join(folder, "bmc.emu"), "-s", folder)
	return address
}

// start runs a program until the test ends.
func start(t *testing.T, environment []string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%v: it is in one of Debian's packages snmpd, mosquitto, mosquitto-clients, nut-server, openipmi, ipmitool", err)
	}
	program := exec.CommandContext(t.Context(), name, args...)
	program.Env = append(os.Environ(), environment...)
	var said strings.Builder
	program.Stdout, program.Stderr = &said, &said
	do(t, program.Start())
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
	do(t, err)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	return port
}

// do ends the test at an error.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	do(t, os.WriteFile(path, []byte(text), 0o600))
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
