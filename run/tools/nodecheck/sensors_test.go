package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"coldaisle.dev/shared/must"
)

// i2c answers what a node reads from a chip.
func i2c(s *site, registers func(question string) []byte) border {
	room := s.until(2*time.Minute, nil)
	return func(question []string) (string, bool) {
		switch question[0] {
		case "read", "register":
			var words []string
			for _, b := range registers(strings.Join(question, " ")) {
				words = append(words, strconv.Itoa(int(b)))
			}
			return strings.Join(words, " "), true
		case "write":
			return "", true
		default:
			return room(question)
		}
	}
}

// checkSensor has a node measure with a chip: it sends what the chip measured, or else says
// what is wrong on its console.
func checkSensor(t *testing.T, sensor string, registers func(string) []byte, console string, temperature, humidity, tolerance float64) {
	t.Helper()
	s := newSite(t)
	said := power(t, i2c(s, registers), s.serve()+"SENSOR = \""+sensor+"\"\n")
	sent := s.on("message")
	if console != "" {
		must.Hold(t, len(sent) == 0 && strings.Contains(said, console), "sent %v and said %q", sent, said)
		return
	}
	if len(sent) == 0 || math.Abs(sent[0].Temperature-temperature) > 0.06 || math.Abs(sent[0].Humidity-humidity) > tolerance {
		t.Errorf("sent %v, want %g °C and %g %%\n%s", sent, temperature, humidity, said)
	}
}

// TestNodeReadsAnSHT31 checks against Sensirion's datasheet of the SHT3x: its formulas
// (4.13), and its example of the checksum, CRC(0xBEEF) = 0x92 (4.12).
func TestNodeReadsAnSHT31(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		checksum byte
		console  string // empty for a reading
	}{"in order": {0x92, ""}, "wrong checksum": {0x93, "wrong checksum of the SHT31"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := func(string) []byte { return []byte{0xBE, 0xEF, 0x92, 0xBE, 0xEF, c.checksum} }
			checkSensor(t, "sht31", raw, c.console, -45+175*float64(0xBEEF)/65535, 100*float64(0xBEEF)/65535, 0.051)
		})
	}
}

// bme280 is the calibration of a piece: the temperature's numbers are the example of Bosch's datasheet of the BMP280
// (3.12), where 519888 is 25.08 °C, the humidity's are of the size that pieces have.
type bme280 struct {
	t1             uint16
	t2, t3         int16
	h1, h3         uint8
	h2, h4, h5     int16
	h6             int8
	rawT, rawH, id int
}

// registers are the chip's memory as its datasheet lays it out (table 16 and 18).
func (b bme280) registers(question string) []byte {
	var address, register, size int
	if _, err := fmt.Sscanf(question, "register %d %d %d", &address, &register, &size); err != nil || address != 0x76 {
		return make([]byte, size)
	}
	memory := make([]byte, 256+8)
	little := binary.LittleEndian
	memory[0xD0] = byte(b.id)
	little.PutUint16(memory[0x88:], b.t1)
	little.PutUint16(memory[0x8A:], uint16(b.t2))
	little.PutUint16(memory[0x8C:], uint16(b.t3))
	memory[0xA1] = b.h1
	little.PutUint16(memory[0xE1:], uint16(b.h2))
	memory[0xE3] = b.h3
	memory[0xE4], memory[0xE6] = byte(b.h4>>4), byte(b.h5>>4)
	memory[0xE5] = byte(b.h4&0x0F) | byte(b.h5&0x0F)<<4
	memory[0xE7] = byte(b.h6)
	memory[0xFA], memory[0xFB], memory[0xFC] = byte(b.rawT>>12), byte(b.rawT>>4), byte(b.rawT<<4)
	memory[0xFD], memory[0xFE] = byte(b.rawH>>8), byte(b.rawH)
	return memory[register : register+size]
}

// measured computes in integers, as the datasheet's reference does (4.2.3); the node computes in floating point.
func (b bme280) measured() (temperature, humidity float64) {
	adc := int32(b.rawT)
	v1 := ((adc>>3 - int32(b.t1)<<1) * int32(b.t2)) >> 11
	v2 := (((adc>>4 - int32(b.t1)) * (adc>>4 - int32(b.t1)) >> 12) * int32(b.t3)) >> 14
	fine := v1 + v2
	temperature = float64((fine*5+128)>>8) / 100
	v := fine - 76800
	v = ((int32(b.rawH)<<14 - int32(b.h4)<<20 - int32(b.h5)*v + 16384) >> 15) *
		((((((v*int32(b.h6))>>10)*((v*int32(b.h3))>>11+32768))>>10+2097152)*int32(b.h2) + 8192) >> 14)
	v -= (((v >> 15) * (v >> 15) >> 7) * int32(b.h1)) >> 4
	return temperature, float64(min(max(v, 0), 419430400)>>12) / 1024
}

func TestNodeReadsABME280(t *testing.T) {
	t.Parallel()
	piece := bme280{t1: 27504, t2: 26435, t3: -1000, h1: 75, h2: 362, h3: 0, h4: 325, h5: 50, h6: 30, id: 0x60}
	negative := piece
	negative.h5 = -50
	for name, c := range map[string]struct {
		chip       bme280
		rawT, rawH int
		console    string
	}{
		"the datasheet's example":      {piece, 519888, 30000, ""},
		"cold and dry":                 {piece, 400000, 24000, ""},
		"hot and humid":                {piece, 600000, 36000, ""},
		"a negative number":            {negative, 600000, 30000, ""},
		"before the first measurement": {piece, 0x80000, 0x8000, "did not measure"},
		"a BMP280":                     {bme280{id: 0x58}, 519888, 30000, "no BME280"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.chip.rawT, c.chip.rawH = c.rawT, c.rawH
			temperature, humidity := c.chip.measured()
			if c.chip.t1 != 0 && c.rawT == 519888 && temperature != 25.08 {
				t.Fatalf("the reference computes %g °C, the datasheet 25.08", temperature)
			}
			checkSensor(t, "bme280", c.chip.registers, c.console, temperature, humidity, 0.1)
		})
	}
}

const esphome = "../../../edge-gateway/nodes/esphome"

// documented are the keys that ESPHome's documentation has for what the files use, by
// component. Nothing here asks ESPHome itself.
var documented = map[string]string{
	// HTTP Request (esphome.io/components/http_request): "timeout (Optional, Time): Timeout for request. Defaults to 4.5s.",
	// "follow_redirects (Optional, boolean): Enable following HTTP redirects. Defaults to true.", "watchdog_timeout
	// (Optional, Time): Change the watchdog timeout during connection/data transfer.", "verify_ssl: [...] Supported on
	// ESP32 only; must be explicitly set to false on other platforms."
	"http_request":      "timeout verify_ssl watchdog_timeout follow_redirects",
	"http_request.post": "url json capture_response on_response",                   // http_request.post Action: "json: A HTTP body in JSON format. Values are templatable"
	"wifi":              "ssid password on_connect",                                // WiFi Component
	"esphome":           "name",                                                    // ESPHome Core Configuration
	"esp32":             "board framework",                                         // ESP32 Platform: "framework: type, sdkconfig_options"
	"framework":         "type sdkconfig_options",                                  //
	"i2c":               "sda scl",                                                 // I²C Bus
	"dht":               "platform model pin update_interval temperature humidity", // DHT: "model: AUTO_DETECT, DHT11, DHT22, …"
	"sht3xd":            "platform address update_interval temperature humidity",   // SHT3X-D: "address: Defaults to 0x44"
	"bme280_i2c":        "platform address update_interval temperature humidity",   // BME280: "bme280_i2c", "address: Defaults to 0x77"
	"dallas_temp":       "platform id update_interval filters",                     // Dallas Temperature Sensor, of a one_wire bus
	"one_wire":          "platform pin",                                            // 1-Wire Bus: "platform: gpio"
	"wifi_info":         "platform ip_address",                                     // WiFi Info Text Sensor
	"globals":           "id type initial_value",                                   // Global Variables
	"script":            "id mode then",                                            // Script: "mode: single, restart, queued, parallel"
	"interval":          "interval then",                                           // Interval Component
	"repeat":            "count then",                                              // repeat Action
	"if":                "condition then",                                          // if Action
	"ota":               "platform",                                                // Over-the-Air Updates
	"substitutions":     "node gateway",
	"packages":          "coldaisle",
}

// component is the name under which a mapping's keys are documented.
func component(under string, m map[string]any) string {
	if platform, ok := m["platform"].(string); ok && under != "ota" && documented[platform] != "" {
		return platform
	}
	return under
}

// walk holds the keys of a file to what is documented and calls visit with each post.
func walk(t *testing.T, file, under string, value any, post func(map[string]any)) {
	t.Helper()
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			walk(t, file, under, v, post)
		}
	case map[string]any:
		name := component(under, value)
		for key, v := range value {
			known, ok := documented[name]
			must.Hold(t, !ok || slices.Contains(strings.Fields(known), key), "%s: %s has no key %s", file, name, key)
			walk(t, file, key, v, post)
		}
		if name == "http_request.post" {
			post(value)
		}
	}
}

func esphomeFile(t *testing.T, file string) map[string]any {
	t.Helper()
	content := must.Get(os.ReadFile(file))(t)
	// ESPHome's own tags are of its loader; what they stand before is a plain scalar.
	plain := regexp.MustCompile(`: !(lambda|secret|include) (.*)`).ReplaceAllString(string(content), `: '$1 $2'`)
	var read map[string]any
	if err := yaml.Unmarshal([]byte(plain), &read); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return read
}

// TestESPHomeFiles sends the real gateway what the files' posts send. In the map form of
// json, ESPHome makes a string of every value: esphome/components/http_request/__init__.py
// has cv.Schema({cv.string: cv.templatable(cv.string_strict)}). Contract 8.1.
func TestESPHomeFiles(t *testing.T) {
	t.Parallel()
	common := esphomeFile(t, esphome+"/coldaisle.yaml")
	request, _ := common["http_request"].(map[string]any)
	timeout, _ := request["timeout"].(string)
	if waits, err := time.ParseDuration(timeout); err != nil || waits <= slowAnswer {
		t.Errorf("posts wait %s %v, want longer than the gateway may take, %s", waits, err, slowAnswer)
	}
	watchdog, _ := request["watchdog_timeout"].(string)
	if bites, err := time.ParseDuration(watchdog); err != nil || bites <= 10*time.Second || request["follow_redirects"] != false {
		t.Errorf("%v: the watchdog must wait for longer than a post, which must not follow to a hotspot's page", request)
	}
	s := newSite(t)
	posts := map[string]bool{}
	walk(t, "coldaisle.yaml", "", common, func(post map[string]any) {
		url, _ := post["url"].(string)
		posts[url] = true
		fields, _ := post["json"].(map[string]any)
		sent := map[string]string{}
		for name := range fields {
			value, known := map[string]string{
				"id": "00c0ffee", "node_id": "rack-1", "ip_addr": "192.168.1.20", "temperature": "24.5", "humidity": "41.0", "age_s": "30",
			}[name]
			must.Hold(t, known, "%s: sends %s, which the gateway does not know", url, name)
			sent[name] = value
		}
		body := must.Get(json.Marshal(sent))(t)
		recorder := httptest.NewRecorder()
		path := strings.TrimPrefix(url, "${gateway}")
		s.gateway.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body))))
		// What on_response looks for.
		must.Hold(t, path != "/api/v1/message" || strings.Contains(recorder.Body.String(), `"message_id":"00c0ffee"`),
			"a reading is answered %s", recorder.Body)
		must.Hold(t, recorder.Code < 300, "%s %s is answered %d %s", path, body, recorder.Code, recorder.Body)
	})
	if len(posts) != 3 || len(s.stored()) != 1 || s.stored()[0].Temperature != 24.5 {
		t.Errorf("posts %v, stored %v", slices.Sorted(maps.Keys(posts)), s.stored())
	}
	files, err := filepath.Glob(esphome + "/*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "coldaisle.yaml" {
			continue
		}
		read := esphomeFile(t, file)
		walk(t, file, "", read, func(map[string]any) {})
		text := must.Get(os.ReadFile(file))(t)
		must.Contain(t, file, string(text), "id: temperature\n", "id: humidity\n", "CONFIG_LWIP_DNS_SUPPORT_MDNS_QUERIES: y",
			"!include coldaisle.yaml", "Never compiled by us")
		// A sensor that fails keeps its last state, which would be sent for ever: only
		// esphome/components/dht/dht.cpp publishes NAN each time. Sensor Filters: "timeout: […] defaults to NaN".
		sensors, _ := read["sensor"].([]any)
		for _, each := range sensors {
			sensor, _ := each.(map[string]any)
			for _, value := range []any{sensor, sensor["temperature"], sensor["humidity"]} {
				if state, _ := value.(map[string]any); state["id"] != nil && sensor["platform"] != "dht" {
					must.Contain(t, fmt.Sprintf("%s: the filters of %s", file, state["id"]), fmt.Sprint(state["filters"]), "map[timeout:")
				}
			}
		}
	}
}
