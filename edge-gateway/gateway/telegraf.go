package gateway

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// resultIgnored counts metrics that do not measure the climate, and fields of Telegraf's own.
const resultIgnored = "ignored"

// TelegrafField says how a field of Telegraf's metrics is read.
type TelegrafField struct {
	// Metric is the name of the metrics, "*" for any.
	Metric string `json:"metric"`
	// Field is the field's name. "*_temperature" is any name with that ending; the part that *
	// matches distinguishes sensors of one node.
	Field string `json:"field"`
	// Unit is the value's unit, unless the metric names one in tag UnitTag.
	Unit    string `json:"unit"`
	UnitTag string `json:"unit_tag"`
	// NodeTags are the tags whose values name the node, behind tag node_site, unless tag node_id
	// does. "a|b" is the first of these tags that the metric has.
	NodeTags []string `json:"node_tags"`
	// Sensor is a regular expression that the last of NodeTags must match; empty matches all.
	Sensor string `json:"sensor"`

	sensor *regexp.Regexp
	// except is a regular expression that the sensor, or what * matches, must not match.
	except *regexp.Regexp
}

// indoors matches sensors that measure a room, unless machineParts does, too.
const indoors = "(?i)inlet|intake|ambient|probe"

var (
	machineParts = regexp.MustCompile("(?i)(^|[^a-z])p/?s[ _-]?[0-9]|psu|power.?supply|cpu|processor|dimm|gpu|fan|volt|current")
	controller   = regexp.MustCompile("^ESP32$") // of Tasmota
)

// defaultTelegraf reads what Telegraf's inputs send without further configuration, and the
// names that docs/recipes.md gives to the fields of SNMP.
func defaultTelegraf() []TelegrafField {
	anywhere := []string{"source|server|agent_host|host", "sensor|name", "index"} // index is a row of SNMP
	return []TelegrafField{
		{
			Metric: "redfish_thermal_temperatures", Field: "reading_celsius", Unit: "celsius", NodeTags: []string{"source|address", "name"},
			Sensor: indoors, except: machineParts,
		},
		{Metric: "ipmi_sensor", Field: "value", UnitTag: "unit", NodeTags: []string{"server|host", "name"}, Sensor: indoors, except: machineParts},
		{Metric: "upsd", Field: "ambient_temperature", Unit: "celsius", NodeTags: []string{"host", "ups_name"}},
		{Metric: "upsd", Field: "ambient_humidity", Unit: "percent", NodeTags: []string{"host", "ups_name"}},
		{Metric: "mqtt_consumer", Field: "temperature", Unit: "celsius", NodeTags: []string{"topic"}},
		{Metric: "mqtt_consumer", Field: "humidity", Unit: "percent", NodeTags: []string{"topic"}},
		{Metric: "mqtt_consumer", Field: "*_Temperature", Unit: "celsius", UnitTag: "TempUnit", NodeTags: []string{"topic"}, except: controller},
		{Metric: "mqtt_consumer", Field: "*_Humidity", Unit: "percent", NodeTags: []string{"topic"}},
		{Metric: "*", Field: "temperature_celsius", Unit: "celsius", NodeTags: anywhere},
		{Metric: "*", Field: "temperature_decicelsius", Unit: "decicelsius", NodeTags: anywhere},
		{Metric: "*", Field: "temperature_fahrenheit", Unit: "fahrenheit", NodeTags: anywhere},
		{Metric: "*", Field: "relative_humidity", Unit: "percent", NodeTags: anywhere},
	}
}

// unit converts values to those of a reading.
type unit struct {
	humidity      bool
	offset, scale float64 // value = (given + offset) * scale
}

const (
	freezing, kelvin = 32, 273.15 // 0 °C in °F and in K
	perFahrenheit    = 5. / 9     // °C
)

// units are known by the names that Telegraf's inputs and people give them.
var units = map[string]unit{ //nolint:gochecknoglobals // a table
	"celsius": {scale: 1}, "degrees_c": {scale: 1}, "°c": {scale: 1}, "c": {scale: 1},
	"decicelsius": {scale: 0.1},
	"fahrenheit":  {offset: -freezing, scale: perFahrenheit}, "degrees_f": {offset: -freezing, scale: perFahrenheit},
	"°f": {offset: -freezing, scale: perFahrenheit}, "f": {offset: -freezing, scale: perFahrenheit},
	"kelvin": {offset: -kelvin, scale: 1}, "degrees_k": {offset: -kelvin, scale: 1}, "k": {offset: -kelvin, scale: 1},
	"percent": {humidity: true, scale: 1}, "%": {humidity: true, scale: 1}, "ratio": {humidity: true, scale: 100},
}

// prepareTelegraf checks the fields of a configuration, which replace the default ones for the
// metrics that they name.
func prepareTelegraf(configured []TelegrafField) ([]TelegrafField, error) {
	fields, errs := slices.Clone(configured), []error(nil)
	for _, d := range defaultTelegraf() {
		if !slices.ContainsFunc(configured, func(c TelegrafField) bool { return c.Metric == d.Metric }) {
			fields = append(fields, d)
		}
	}
	for i := range fields {
		f := &fields[i]
		var err error
		if f.sensor, err = regexp.Compile(f.Sensor); err != nil {
			errs = append(errs, fmt.Errorf("telegraf: sensor of %s: %w", f.Metric, err))
		}
		check := func(ok bool, format string, args ...any) {
			if !ok {
				errs = append(errs, fmt.Errorf("telegraf: field %q of %q "+format, append([]any{f.Field, f.Metric}, args...)...))
			}
		}
		_, known := units[strings.ToLower(f.Unit)]
		check(f.Metric != "" && f.Field != "" && len(f.NodeTags) > 0 && f.Unit+f.UnitTag != "", "needs metric, field, node_tags, and a unit or a unit_tag")
		check(known || f.Unit == "", "has the unit %q, which is none of %s", f.Unit, strings.Join(slices.Sorted(maps.Keys(units)), ", "))
		check(f.Metric == "*" || !strings.Contains(f.Metric, "*"), "must have a whole name or * as its metric")
		check(strings.LastIndex(f.Field, "*") <= 0, "may have a * at its beginning alone")
	}
	return fields, errors.Join(errs...)
}

// telegrafMetric is a metric in Telegraf's JSON.
type telegrafMetric struct {
	Name      string            `json:"name"`
	Tags      map[string]string `json:"tags"`
	Fields    map[string]number `json:"fields"`
	Timestamp int64             `json:"timestamp"`
}

// at is the metric's time. Telegraf counts in one of several units since 1970: for times from
// 2000 until 2100 the size of the number tells which.
func (m *telegrafMetric) at() time.Time {
	nanoseconds := m.Timestamp
	for _, end := range []int64{1e11, 1e14, 1e17} {
		if m.Timestamp < end {
			nanoseconds *= 1000
		}
	}
	return time.Unix(0, nanoseconds)
}

// tag returns the first of several tags ("a|b") that the metric has.
func (m *telegrafMetric) tag(names string) string {
	for name := range strings.SplitSeq(names, "|") {
		if value := strings.TrimSpace(m.Tags[name]); value != "" {
			return value
		}
	}
	return ""
}

// node returns the id of a field's node; star is the part of the name that * matches. Tasmota
// renumbers its probes when one is added, so that a probe's own id comes before star.
func (f *TelegrafField) node(m *telegrafMetric, star string) string {
	star = cmp.Or(m.tag(star+"_Id"), star)
	if id := m.tag("node_id"); id != "" {
		return nodeIDOf(id, star)
	}
	parts := []string{m.tag("node_site")} // what is read at two sites may have one name
	for _, names := range f.NodeTags {
		parts = append(parts, m.tag(names))
	}
	return nodeIDOf(append(parts, star)...)
}

// name suggests a name for the node: rack, host and sensor from the tags.
func (f *TelegrafField) name(m *telegrafMetric, star string) string {
	words := []string{m.tag("node_site"), m.tag("rack")}
	for _, names := range f.NodeTags {
		words = append(words, m.tag(names))
	}
	printable := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return -1
		}
		return c
	}, strings.Join(append(words, star), " "))
	name := []rune(strings.Join(strings.Fields(printable), " "))
	return string(name[:min(len(name), wire.MaxNodeName)])
}

// nodeIDOf makes a node id of names. If characters must be replaced or cut off, a hash keeps
// it unique.
func nodeIDOf(names ...string) string {
	whole := strings.Join(slices.DeleteFunc(names, func(s string) bool { return s == "" }), ".")
	escaped := strings.Map(func(c rune) rune {
		if reading.ValidateNodeID("x"+string(c)) == nil {
			return c
		}
		return '_'
	}, whole)
	if escaped == whole && len(whole) <= reading.MaxNodeIDLength {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	hash := fmt.Sprintf("-%x", sum[:4])
	return escaped[:min(len(escaped), reading.MaxNodeIDLength-len(hash))] + hash
}

// star reports whether a name is the field's, and returns the part that * matches.
func (f *TelegrafField) star(name string) (string, bool) {
	if end, ok := strings.CutPrefix(f.Field, "*"); ok {
		return strings.CutSuffix(name, end)
	}
	return "", name == f.Field
}

// readings returns a reading for each field of a metric that measures a room, with its violation
// if it cannot be read.
func (m *telegrafMetric) readings(fields []TelegrafField) (items []batchReading) {
	switch m.Tags["state"] {
	case "Absent", "Disabled", "UnavailableOffline": // of Redfish: some say 0 °C
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.Fields)) {
		for i := range fields {
			f := &fields[i]
			star, ok := f.star(name)
			if !ok || f.Metric != "*" && f.Metric != m.Name {
				continue
			}
			sensor := m.tag(f.NodeTags[len(f.NodeTags)-1])
			if !f.sensor.MatchString(sensor) || f.except != nil && f.except.MatchString(cmp.Or(star, sensor)) {
				continue
			}
			item := batchReading{Timestamp: m.at().UTC().Format(time.RFC3339Nano), tags: m.Tags}
			item.NodeID, item.name = f.node(m, star), f.name(m, star)
			value := m.Fields[name]
			in := cmp.Or(m.Tags[f.UnitTag], f.Unit)
			u, known := units[strings.ToLower(in)]
			if !known {
				item.refuse("unit", fmt.Errorf("the unit %.20q of %s is not known", in, item.NodeID))
			}
			item.refuse("value", value.required(name))
			const precision = 1e4 // no sensor has more; 224 tenths must become 22.4
			value.value = math.Round((value.value+u.offset)*u.scale*precision) / precision
			const powerOn = 85 // °C, what a DS18B20 says until it has measured
			if !u.humidity && value.value == powerOn && strings.Contains(name, "DS18B20") {
				item.refuse("value", fmt.Errorf("%s of 85 °C is its value at power-on, not a measurement", name))
			}
			if u.humidity {
				item.Humidity = value
			} else {
				item.Temperature = value
			}
			item.refuse("value", reading.ValidateValues(item.Temperature.orMissing(), item.Humidity.orMissing())) // alone: the other may be good
			items = append(items, item)
			break
		}
	}
	return items
}

// parseTelegraf reads a batch of metrics. Values of one node and time become one reading, unless
// they are two of the same quantity: with equal tags two readings, else of two sensors.
func parseTelegraf(body []byte, fields []TelegrafField) (found batch, err error) {
	var in struct {
		Metrics []json.RawMessage `json:"metrics"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return batch{}, malformed(err)
	}
	if in.Metrics == nil {
		return batch{}, errors.New("metrics is required")
	}
	type place struct{ node, timestamp string }
	merged := map[place]int{} // indices of items
	for _, text := range in.Metrics {
		var m telegrafMetric
		if err := decode(text, &m); err != nil {
			found.items = append(found.items, batchReading{broken: &violation{"malformed", err}})
			continue
		}
		measured := m.readings(fields)
		if len(measured) == 0 {
			found.ignored++
		}
		for _, item := range measured {
			at := place{item.NodeID, item.Timestamp}
			known, ok := merged[at]
			if ok && item.broken == nil && found.items[known].include(item) {
				continue
			}
			if ok && item.broken == nil && !maps.Equal(found.items[known].tags, m.Tags) { // either would be taken for the other
				err := fmt.Errorf("two sensors are called %s: give each a tag node_id", item.NodeID)
				found.items[known].refuse("id", err)
				item.refuse("id", err)
			}
			if item.broken == nil {
				merged[at] = len(found.items)
			}
			found.items = append(found.items, item)
		}
	}
	if len(found.items) > MaxBatch {
		return batch{}, errTooMany
	}
	return found, nil
}

// include adds the value of another reading of the same node and time, and reports whether there
// was room for it.
func (b *batchReading) include(other batchReading) bool {
	switch {
	case other.Temperature.given && !b.Temperature.given:
		b.Temperature = other.Temperature
	case other.Humidity.given && !b.Humidity.given:
		b.Humidity = other.Humidity
	default:
		return false
	}
	return true
}

// telegraf receives a batch of Telegraf's outputs.http in its JSON.
func (q *requests) telegraf(w http.ResponseWriter, r *http.Request) {
	q.batch(w, r, func(_ string, body []byte) (batch, error) { return parseTelegraf(body, q.telegrafFields) })
}
