package telegraftest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/influxdata/telegraf/plugins/outputs/file"
)

// The nodes of the ledger, 200 together, by what Telegraf reads them with.
const (
	bmcs   = 60 // by Redfish; one more by IPMI
	probes = 69 // of PDUs, by SNMP
	radios = 60 // by MQTT
	upses  = 10 // by NUT
)

// entry is what a reading is known by on both sides of the ledger.
type entry struct {
	node                  string
	millisecond           int64
	temperature, humidity string
}

// TestLedger has 200 nodes read by Telegraf for TELEGRAF_LEDGER (3 minutes; an hour in the
// nightly) and sent through a gateway to the local system. On the way Pub/Sub is away for a tenth
// of the time, the gateway is killed while it is, and Telegraf is restarted. Afterwards the table
// must have what Telegraf wrote to a file beside: nothing less, and nothing twice.
func TestLedger(t *testing.T) {
	lasts, err := time.ParseDuration(cmp.Or(os.Getenv("TELEGRAF_LEDGER"), "3m"))
	do(t, err)
	folder := t.TempDir()
	environment := cloud(t, folder)
	uplink := newUplink(t, environment["PUBSUB_EMULATOR_HOST"])
	address, kill := gatewayProgram(t, folder, uplink.address)
	configuration, sent := sources(t, folder, "http://"+address)

	stop := telegraf(t, configuration)
	pass := func(share float64) { time.Sleep(time.Duration(share * float64(lasts))) }
	pass(0.3)
	uplink.cut(true)
	pass(0.05)
	kill()
	pass(0.05)
	uplink.cut(false)
	pass(0.2)
	stop()
	stop = telegraf(t, configuration)
	pass(0.4)
	stop()

	want := written(t, sent)
	var got map[entry]int
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		if got = stored(t, environment["DATABASE_URL"]); len(got) >= len(want) || time.Now().After(deadline) {
			break
		}
	}
	nodes, missing, twice, unknown := map[string]bool{}, 0, 0, 0
	for e := range want {
		nodes[e.node] = true
		if got[e] == 0 {
			missing++
		}
	}
	for e, times := range got {
		twice += times - 1
		if !want[e] {
			unknown++
		}
	}
	t.Logf("%v: %d nodes, %d readings that Telegraf wrote, %d stored, %d missing, %d twice, %d of unknown origin", lasts, len(nodes), len(want), len(got), missing, twice, unknown)
	if missing+twice+unknown > 0 || len(nodes) != 200 {
		t.Error("the ledger is not exact")
	}
}

// cloud starts the local system without nodes and returns the variables by which others find its parts.
func cloud(t *testing.T, folder string) map[string]string {
	t.Helper()
	program := build(t, folder, "run/local")
	data := filepath.Join(folder, "cloud")
	start(t, nil, program, "--nodes", "0", "--data", data, "--api-port", freePort(t), "--gateway-port", freePort(t))
	path, environment := filepath.Join(data, "environment"), map[string]string{}
	wait(t, "the local system", func() bool {
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			environment[name] = strings.Trim(value, "'")
		}
		return err == nil && environment["DATABASE_URL"] != ""
	})
	return environment
}

// build builds a program of the project.
func build(t *testing.T, folder, program string) string {
	t.Helper()
	path := filepath.Join(folder, filepath.Base(program)+".program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", path, "./"+program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// gatewayProgram starts a gateway and returns its address, and what kills it by SIGKILL and starts it again.
func gatewayProgram(t *testing.T, folder, pubsub string) (address string, kill func()) {
	t.Helper()
	program, port, file := build(t, folder, "edge-gateway"), freePort(t), filepath.Join(folder, "sources.json")
	write(t, file, `{"sources": [{"name": "telegraf", "networks": ["127.0.0.1"]}]}`)
	var running *exec.Cmd
	run := func() {
		running = exec.Command(program)
		running.Env = append(os.Environ(), "PUBSUB_EMULATOR_HOST="+pubsub, "PROJECT_ID=coldaisle-local", "PORT="+port,
			"OUTBOX_DIR="+filepath.Join(folder, "outbox"), "SOURCES_FILE="+file, "MDNS=false")
		running.Stderr = t.Output() // why it ends, if it does
		do(t, running.Start())
	}
	end := func() { _, _ = running.Process.Kill(), running.Wait() }
	run()
	t.Cleanup(func() { end() })
	listens(t, "127.0.0.1:"+port)
	return "127.0.0.1:" + port, func() { end(); run() }
}

// uplink forwards connections to Pub/Sub until it is cut.
type uplink struct {
	address string

	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]struct{}
}

func newUplink(t *testing.T, target string) *uplink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	do(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	u := &uplink{address: listener.Addr().String(), open: map[net.Conn]struct{}{}}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil || !u.add(from, to) {
				_ = from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				}()
			}
		}
	}()
	return u
}

func (u *uplink) add(connections ...net.Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range connections {
		u.open[c] = struct{}{}
	}
	return !u.isCut
}

func (u *uplink) cut(isCut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.isCut = isCut
	for c := range u.open {
		if isCut {
			_ = c.Close()
		}
	}
}

// sources starts what Telegraf reads, and returns its configuration and the path of the file that
// it writes besides. Tag node_id names the nodes.
func sources(t *testing.T, folder, gateway string) (configuration, sent string) {
	t.Helper()
	sent = filepath.Join(folder, "sent.json")
	var b strings.Builder
	fmt.Fprintf(&b, `
[agent]
  interval = "10s"
  flush_interval = "5s"
  metric_batch_size = 500
  metric_buffer_limit = 100000
  snmp_translator = "gosmi"
[[outputs.http]]
  url = "%s/api/v1/telegraf"
  data_format = "json"
  json_timestamp_units = "1ms"
  use_batch_format = true
  non_retryable_statuscodes = [400, 413]
[[outputs.file]]
  files = ["%s"]
  data_format = "json"
  json_timestamp_units = "1ms"
[[inputs.ipmi_sensor]]
  servers = ["monitor:password@lanplus(%s)"]
  metric_version = 2
  [inputs.ipmi_sensor.tagpass]
    name = ["inlet_temp"]
  [inputs.ipmi_sensor.tags]
    node_id = "ipmi"
[[inputs.mqtt_consumer]]
  servers = ["tcp://%s"]
  topics = ["+"]
  data_format = "json"
[[inputs.upsd]]
  server = "127.0.0.1"
  port = %s
  additional_fields = ["ambient.*"]
`, gateway, sent, bmc(t), broker(t), nut(t, upses))
	server := httptest.NewUnstartedServer(http.HandlerFunc(redfish))
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	do(t, err)
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	for i := range bmcs {
		fmt.Fprintf(&b, `[[inputs.redfish]]
  address = "http://127.0.1.%d:%d"
  username = "monitor"
  password = "password"
  computer_system_id = "System.Embedded.1"
  include_metrics = ["thermal"]
  [inputs.redfish.tagpass]
    name = ["*Inlet*"]
  [inputs.redfish.tags]
    node_id = "bmc-%d"
`, i+1, listener.Addr().(*net.TCPAddr).Port, i+1)
	}
	var columns [3]strings.Builder
	for i := range probes {
		fmt.Fprintf(&columns[0], ".1.3.6.1.4.1.318.1.1.26.10.2.2.1.3.%d string probe-%d\n", i+1, i+1)
		fmt.Fprintf(&columns[1], ".1.3.6.1.4.1.318.1.1.26.10.2.2.1.8.%d integer %d\n", i+1, 200+i)
		fmt.Fprintf(&columns[2], ".1.3.6.1.4.1.318.1.1.26.10.2.2.1.10.%d integer %d\n", i+1, 30+i/10)
	}
	fmt.Fprintf(&b, `[[inputs.snmp]]
  agents = ["udp://%s"]
  timeout = "30s"
  max_repetitions = 50
  [[inputs.snmp.table]]
    name = "probe"
`, snmpd(t, columns[0].String()+columns[1].String()+columns[2].String()))
	for name, column := range map[string]string{"node_id": "3\"\n      is_tag = true #\"", "temperature_decicelsius": "8", "relative_humidity": "10"} {
		fmt.Fprintf(&b, `    [[inputs.snmp.table.field]]
      name = "%s"
      oid = ".1.3.6.1.4.1.318.1.1.26.10.2.2.1.%s"
`, name, column)
	}
	return b.String(), sent
}

// broker is mosquitto with sensors that publish.
func broker(t *testing.T) string {
	t.Helper()
	address := mosquitto(t, freePort(t))
	_, port, _ := net.SplitHostPort(address)
	for i := range radios {
		sensor := exec.CommandContext(t.Context(), "mosquitto_pub", "-p", port, "-h", "127.0.0.1", "-t", fmt.Sprintf("radio-%d", i+1), "-l")
		in, err := sensor.StdinPipe()
		do(t, err)
		do(t, sensor.Start())
		stop := make(chan struct{})
		var publishing sync.WaitGroup
		publishing.Go(func() {
			for n := 0; ; n++ {
				_, _ = fmt.Fprintf(in, `{"temperature":%.2f,"humidity":%d}`+"\n", 20+float64(n%400)/100, 30+i%20)
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Second):
				}
			}
		})
		t.Cleanup(func() { close(stop); publishing.Wait(); _ = in.Close(); _ = sensor.Wait() })
	}
	return address
}

// written returns what Telegraf wrote to its file: a metric is a reading, by the names and units of its input.
func written(t *testing.T, path string) map[entry]bool {
	t.Helper()
	file, err := os.Open(path)
	do(t, err)
	defer func() { _ = file.Close() }()
	want := map[entry]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var m struct {
			Tags      map[string]string
			Fields    map[string]any
			Timestamp int64
		}
		do(t, json.Unmarshal(lines.Bytes(), &m))
		e := entry{node: m.Tags["node_id"], millisecond: m.Timestamp}
		for _, tag := range []string{"topic", "ups_name"} {
			if e.node == "" {
				e.node = m.Tags[tag]
			}
		}
		for field, value := range m.Fields {
			number, _ := value.(float64)
			switch field {
			case "reading_celsius", "value", "temperature", "ambient_temperature":
				e.temperature = fmt.Sprintf("%.2f", number)
			case "temperature_decicelsius":
				e.temperature = fmt.Sprintf("%.2f", number/10)
			case "humidity", "ambient_humidity", "relative_humidity":
				e.humidity = fmt.Sprintf("%.2f", number)
			}
		}
		want[e] = true
	}
	return want
}

// stored returns the rows of the table of readings, and how often each stands there.
func stored(t *testing.T, database string) map[entry]int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "psql", database, "-XAtc", `
		SELECT node_id, (extract(epoch FROM timestamp) * 1000)::bigint, to_char(temperature, 'FM990.00'), to_char(humidity, 'FM990.00')
		FROM sensor_data.readings WHERE node_id NOT LIKE 'coldaisle.%'`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[entry]int{}
	for line := range strings.Lines(string(out)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		at, err := strconv.ParseInt(cells[1], 10, 64)
		if err != nil || len(cells) != 4 {
			t.Fatalf("%q: %v", line, err)
		}
		got[entry{cells[0], at, cells[2], cells[3]}]++
	}
	return got
}
