package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"coldaisle.dev/shared/must"
)

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
			if known, ok := documented[name]; ok && !slices.Contains(strings.Fields(known), key) {
				t.Errorf("%s: %s has no key %s", file, name, key)
			}
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
			if !known {
				t.Errorf("%s: sends %s, which the gateway does not know", url, name)
			}
			sent[name] = value
		}
		body := must.Get(json.Marshal(sent))(t)
		recorder := httptest.NewRecorder()
		path := strings.TrimPrefix(url, "${gateway}")
		s.gateway.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body))))
		// What on_response looks for.
		if path == "/api/v1/message" && !strings.Contains(recorder.Body.String(), `"message_id":"00c0ffee"`) {
			t.Errorf("a reading is answered %s", recorder.Body)
		}
		if recorder.Code >= 300 {
			t.Errorf("%s %s is answered %d %s", path, body, recorder.Code, recorder.Body)
		}
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
	}
}
