package overview

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

// openMetrics is the type of the answer that Prometheus asks for.
const openMetrics = "application/openmetrics-text"

type metricsInput struct {
	Accept string `header:"Accept" hidden:"true"`
}

const metricsExample = `# HELP coldaisle_temperature_celsius Temperature. Absent while the sensor is silent.
# TYPE coldaisle_temperature_celsius gauge
# UNIT coldaisle_temperature_celsius celsius
coldaisle_temperature_celsius{node_id="esp32-7f3a",sensor="Rack 12 top",room="Hall A",gateway=""} 24.3
# EOF
`

func (h *Handlers) registerMetrics(r *rest.API) {
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}, Example: metricsExample}
	// Scraped by Prometheus every 15 to 60 seconds.
	rest.Register(r, rest.Operation{
		ID: "getMetrics", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/metrics", Tag: rest.TagData,
		Summary: "Read the current state as metrics for Prometheus",
		Description: "OpenMetrics 1.0 if it is asked for, as Prometheus does, else the text format of Prometheus. The values of a silent sensor are " +
			"absent; `coldaisle_sensor_up` is 0 then.",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{openMetrics: text, "text/plain": text}}},
	}, h.metrics)
}

func (h *Handlers) metrics(ctx context.Context, in *metricsInput) (*huma.StreamResponse, error) {
	families, err := h.families(ctx)
	if err != nil {
		return nil, err
	}
	format := expfmt.NegotiateAccept(http.Header{"Accept": {in.Accept}}, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtText)
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return nil, fmt.Errorf("encode %s: %w", f.GetName(), err)
		}
	}
	if end, ok := encoder.(expfmt.Closer); ok {
		if err := end.Close(); err != nil {
			return nil, fmt.Errorf("encode the end: %w", err)
		}
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", string(format))
		hc.AppendHeader("Vary", "Accept")
		hc.SetStatus(http.StatusOK)
		_, _ = hc.BodyWriter().Write(text.Bytes()) // the client may have gone
	}}, nil
}

// newFamily makes one metric of many sensors.
func newFamily(name, unit, help string) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if unit != "" {
		f.Name, f.Unit = new(name+"_"+unit), &unit
	}
	return f
}

func addGauge(f *dto.MetricFamily, labels []*dto.LabelPair, value float64) {
	f.Metric = append(f.Metric, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}})
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// families computes the metrics. Names and units are those of
// https://prometheus.io/docs/practices/naming/.
func (h *Handlers) families(ctx context.Context) ([]*dto.MetricFamily, error) {
	customer, now := auth.Caller(ctx), h.Clock()
	probe, err := incidents.New(h.DB).Probe(ctx)
	if err != nil {
		return nil, err
	}
	rooms, err := accounts.New(h.DB).Rooms(ctx, customer)
	if err != nil {
		return nil, err
	}
	live, err := incidents.New(h.DB).LiveSensors(ctx, customer)
	if err != nil {
		return nil, err
	}
	if err := incidents.New(h.DB).Settle(ctx, customer, now); err != nil { // writes transitions that are due by the clock
		return nil, err
	}
	lasting, err := incidents.New(h.DB).Lasting(ctx, customer, func() ([]incidents.LiveSensor, error) { return live, nil }, now)
	if err != nil {
		return nil, err
	}
	late := newFamily("coldaisle_probe_lateness", "seconds", "How late readings of the service's own probe are: more than 60 is an outage of the service.")
	addGauge(late, nil, probe.Lateness(now).Seconds())
	all := append(append(sensorFamilies(live, rooms, probe, now), incidentFamilies(lasting)...), late)
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), nil // the encoder refuses an empty one
}

func sensorFamilies(live []incidents.LiveSensor, rooms []accounts.Room, probe incident.Probe, now time.Time) []*dto.MetricFamily {
	names := map[int64]string{}
	for _, r := range rooms {
		names[r.ID] = r.Name
	}
	var (
		temperature = newFamily("coldaisle_temperature", "celsius", "Temperature. Absent while none comes.")
		humidity    = newFamily("coldaisle_relative_humidity", "ratio", "Relative humidity, 0 to 1. Absent while none comes.")
		dewPoint    = newFamily("coldaisle_dew_point", "celsius", "Temperature at which water condenses. Absent while not both values come.")
		newest      = newFamily("coldaisle_last_reading_timestamp", "seconds", "Time of the newest reading, in seconds since 1970.")
		up          = newFamily("coldaisle_sensor_up", "", "1 while readings come, 0 while the sensor is silent or has never sent one.")
	)
	for _, l := range live {
		labels := []*dto.LabelPair{label("node_id", l.NodeID), label("sensor", l.Name), label("room", names[l.RoomID]), label("gateway", l.GatewayID)}
		if l.Timestamp == nil {
			addGauge(up, labels, 0)
			continue
		}
		addGauge(newest, labels, float64(l.Timestamp.UnixMilli())/1000) //nolint:mnd // ms
		if l.Silent(probe, now) {
			addGauge(up, labels, 0)
			continue
		}
		addGauge(up, labels, 1)
		t, h := l.Values(probe, now)
		for _, g := range []struct {
			family *dto.MetricFamily
			value  float64
		}{{temperature, t}, {humidity, h / 100}, {dewPoint, reading.DewPoint(t, h)}} { //nolint:mnd // percent
			if reading.Has(g.value) {
				addGauge(g.family, labels, g.value)
			}
		}
	}
	return []*dto.MetricFamily{temperature, humidity, dewPoint, newest, up}
}

func incidentFamilies(lasting []incidents.Incident) []*dto.MetricFamily {
	counts := newFamily("coldaisle_incidents", "", "Incidents that last: open, taken, silenced by maintenance, or late: nobody is called.")
	drills := newFamily("coldaisle_drill", "", "1 for each alarm drill whose incident lasts, which coldaisle_incidents does not count.")
	type counted struct{ room, cause, severity, state string }
	count := map[counted]int{} // two rooms may have one name
	for _, i := range lasting {
		if i.DrillID != 0 {
			addGauge(drills, []*dto.LabelPair{label("room", i.RoomName), label("cause", string(i.Cause)), label("severity", string(i.Severity)), label("drill", strconv.FormatInt(i.DrillID, 10))}, 1)
			continue
		}
		count[counted{i.RoomName, string(i.Cause), string(i.Severity), string(i.State())}]++
	}
	inOrder := func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.cause, b.cause), cmp.Compare(a.severity, b.severity), cmp.Compare(a.state, b.state))
	}
	for _, c := range slices.SortedFunc(maps.Keys(count), inOrder) {
		labels := []*dto.LabelPair{label("room", c.room), label("cause", c.cause), label("severity", c.severity), label("state", c.state)}
		addGauge(counts, labels, float64(count[c]))
	}
	return []*dto.MetricFamily{counts, drills}
}
