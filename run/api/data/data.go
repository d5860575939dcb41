// Package data has the operations on what sensors measure: the latest readings,
// history, statistics, and the forecast of the next seconds.
package data

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/pipeline"
)

type readingBody struct {
	NodeID      string    `json:"node_id" doc:"Sensor that measured." example:"esp32-7f3a"`
	Temperature *float64  `json:"temperature" doc:"Degrees Celsius; null if not measured." example:"24.3"`
	Humidity    *float64  `json:"humidity" doc:"Relative humidity in percent; null if not measured." example:"41.2"`
	Timestamp   rest.Time `json:"timestamp" doc:"Time of the reading, UTC." example:"2026-03-01T12:00:00Z"`
}

func readingOf(r reading.Reading) readingBody {
	return readingBody{
		NodeID: r.NodeID, Temperature: reading.Pointer(r.Temperature), Humidity: reading.Pointer(r.Humidity), Timestamp: rest.UTC(r.Time),
	}
}

// nodeList names sensors. It may have any texts: those that are not sensors of the
// caller's are absent from the answer.
type nodeList struct {
	_         struct{} `additionalProperties:"true"`
	NodeIDs   []string `json:"node_ids,omitempty" nullable:"false" maxItems:"1000" doc:"Sensors to read." example:"esp32-7f3a,esp32-90bc"`
	SensorIDs []string `json:"sensor_ids,omitempty" nullable:"false" maxItems:"1000" doc:"Another name for node_ids." example:"esp32-7f3a"`
}

// TransformSchema says that one of the two names must be used.
func (nodeList) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{
		rest.Alternative("ListOfNodeIDs", "Sensors by node_ids.", "node_ids"),
		rest.Alternative("ListOfSensorIDs", "Sensors by sensor_ids.", "sensor_ids"),
	}
	return s
}

// Resolve reports that both lists are absent, which anyOf in the schema cannot say.
func (l *nodeList) Resolve(huma.Context, *huma.PathBuffer) []error {
	return input.Check(l.NodeIDs != nil || l.SensorIDs != nil, "body", "expected required property node_ids to be present")
}

// nodes are the possible identifiers of the list, each once.
func (l *nodeList) nodes() []string {
	var possible []string
	for _, id := range slices.Concat(l.NodeIDs, l.SensorIDs) {
		if reading.ValidateNodeID(id) == nil {
			possible = append(possible, id)
		}
	}
	slices.Sort(possible)
	return slices.Compact(possible)
}

// Handlers answer the operations on readings.
type Handlers struct {
	rest     *rest.API
	DB       *store.DB
	Readings readings.Reader
	Models   Models // nil without any
	Clock    func() time.Time

	shipped *anomaly.Calibration // for customers who have none yet
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.rest, h.shipped = r, anomaly.Calibrate(nil)
	// Polled by a sensor's page.
	rest.Answer(r, rest.Operation{
		ID: "getLatestReading", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/data/latest/{sensor_id}", Tag: rest.TagData,
		Summary:     "Read a sensor's latest reading",
		Description: "The newest value of each quantity, null if the sensor has never sent one, and the time of the newer one.",
	}, h.latest, store.ErrNoSensor, errNoReadings)
	// Polled by the overview of all sensors. It is a POST, although it only reads,
	// because the list may be longer than a URL.
	rest.Answer(r, rest.Operation{
		ID: "getLatestReadings", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodPost, Path: "/api/v1/data/multi-sensor", Tag: rest.TagData,
		Summary:     "Read the latest readings of several sensors",
		Description: "The answer is keyed by sensor; sensors without readings, and ids that are not the caller's sensors, are absent.",
	}, h.multiSensor)
	h.registerHistory(r)
	h.registerStats(r)
	h.registerUsual(r)
	h.registerReport(r)
	h.registerRoomTime(r)
	h.registerForecast(r)
}

// ownedNode returns the caller's sensor with the spans of readings that the caller may
// see.
func ownedNode(ctx context.Context, sensors *store.DB, sensorID string) (readings.NodeRef, error) {
	if reading.ValidateNodeID(sensorID) != nil {
		return readings.NodeRef{}, store.ErrNoSensor
	}
	return accounts.New(sensors).VisibleNode(ctx, auth.Caller(ctx), sensorID)
}

var errNoReadings = rest.NotFound("No readings found")

func (h *Handlers) latest(ctx context.Context, in *input.SensorPath) (readingBody, error) {
	found, err := pipeline.New(h.DB).NewestReadings(ctx, auth.Caller(ctx), []string{in.SensorID})
	newest, ok := found[in.SensorID]
	if err == nil && !ok {
		if _, err = accounts.New(h.DB).Sensor(ctx, auth.Caller(ctx), in.SensorID); err == nil {
			err = errNoReadings
		}
	}
	return readingOf(newest), err
}

func (h *Handlers) multiSensor(ctx context.Context, in *rest.Body[nodeList]) (map[string]readingBody, error) {
	answer := map[string]readingBody{}
	wanted := in.Body.nodes()
	if len(wanted) == 0 {
		return answer, nil
	}
	found, err := pipeline.New(h.DB).NewestReadings(ctx, auth.Caller(ctx), wanted)
	for id, newest := range found {
		answer[id] = readingOf(newest)
	}
	return answer, err
}
