package data

import (
	"context"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// bucketBody summarises one of max_points equal parts of a range.
type bucketBody struct {
	NodeID         string    `json:"node_id" doc:"Sensor that measured." example:"esp32-7f3a"`
	Timestamp      rest.Time `json:"timestamp" doc:"Begin of the bucket, UTC." example:"2026-03-01T12:00:00Z"`
	Temperature    *float64  `json:"temperature" doc:"Mean, in degrees Celsius; null if not measured." example:"24.3"`
	Humidity       *float64  `json:"humidity" doc:"Mean relative humidity in percent; null if not measured." example:"41.2"`
	MinTemperature *float64  `json:"min_temperature" doc:"Lowest, in degrees Celsius; null if not measured." example:"23.9"`
	MaxTemperature *float64  `json:"max_temperature" doc:"Highest, in degrees Celsius; null if not measured." example:"24.8"`
	MinHumidity    *float64  `json:"min_humidity" doc:"Lowest relative humidity in percent; null if not measured." example:"40.6"`
	MaxHumidity    *float64  `json:"max_humidity" doc:"Highest relative humidity in percent; null if not measured." example:"41.9"`
	Count          int64     `json:"count" doc:"Readings in the bucket." example:"120"`
}

type historyInput struct {
	SensorID    string          `path:"sensor_id" doc:"Identifier of one of the caller's sensors." example:"esp32-7f3a"`
	StartTime   input.Timestamp `query:"start_time" required:"true" doc:"Begin of the range, included; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime     input.Timestamp `query:"end_time" required:"true" doc:"End of the range, excluded; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
	MaxPoints   int             `query:"max_points" minimum:"1" maximum:"10000" doc:"Summarise the range in so many equal parts; those without readings are left out." example:"500"`
	Uncorrected bool            `query:"uncorrected" doc:"Also what was measured of readings to which a correction applied; not with max_points." example:"true"`
	Format      string          `query:"format" enum:"json,csv" doc:"Form of the answer; it comes before the Accept header." example:"csv"`
	Accept      string          `header:"Accept" hidden:"true"`
}

// Resolve refuses a range that ends before it starts, and uncorrected values in buckets.
func (in *historyInput) Resolve(huma.Context) []error {
	return append(
		input.CheckRange(in.StartTime, in.EndTime),
		input.Check(!in.Uncorrected || in.MaxPoints == 0, "query.uncorrected", "cannot be combined with max_points")...)
}

// exportedReading is a reading with its measured values.
type exportedReading struct {
	NodeID                 string    `json:"node_id" doc:"Sensor that measured." example:"esp32-7f3a"`
	Temperature            *float64  `json:"temperature" doc:"Degrees Celsius; null if not measured." example:"24.3"`
	Humidity               *float64  `json:"humidity" doc:"Relative humidity in percent; null if not measured." example:"41.2"`
	Timestamp              rest.Time `json:"timestamp" doc:"Time of the reading, UTC." example:"2026-03-01T12:00:00Z"`
	UncorrectedTemperature *float64  `json:"uncorrected_temperature" doc:"As measured, in degrees Celsius; null where no correction applied." example:"24.6"`
	UncorrectedHumidity    *float64  `json:"uncorrected_humidity" doc:"As measured, in percent; null where no correction applied." example:"39.7"`
}

func (h *Handlers) registerHistory(r *rest.API) {
	registry := r.Schemas()
	array := func(name, description string, item reflect.Type) *huma.Schema {
		return rest.NamedSchema(registry, name, &huma.Schema{
			Type: huma.TypeArray, Description: description, Items: registry.Schema(item, true, ""),
		})
	}
	// Called by a sensor's page with max_points, and by people who export.
	rest.Register(r, rest.Operation{
		ID: "getHistory", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/data/historical/{sensor_id}", Tag: rest.TagData,
		Summary: "Read a sensor's readings of a range, oldest first",
		Description: "All readings with `start_time` ≤ timestamp < `end_time`, streamed; with `max_points`, one object per bucket of equal " +
			"width. CSV has the same columns. An answer that is cut short ends without its closing bracket and its last chunk.",
		Responses: map[string]*huma.Response{"200": {
			Description: "OK",
			Content: map[string]*huma.MediaType{
				rest.ContentJSON: {Schema: rest.NamedSchema(registry, "History", &huma.Schema{AnyOf: []*huma.Schema{
					array("RawHistory", "Every reading, when max_points is not given.", reflect.TypeFor[readingBody]()),
					array("UncorrectedHistory", "Every reading with what was measured, when uncorrected is true.", reflect.TypeFor[exportedReading]()),
					array("BucketHistory", "A summary of each part, when max_points is given.", reflect.TypeFor[bucketBody]()),
				}})},
				rest.ContentCSV: {
					Schema:  &huma.Schema{Type: huma.TypeString},
					Example: csvReadingHeader + "esp32-7f3a,2026-03-01T12:00:00Z,24.3,41.2\n",
				},
			},
		}},
	}, h.history, store.ErrNoSensor, fairqueue.ErrNoSlot)
}

// clampRange limits a query to the times that a reading can have.
func clampRange(start, end time.Time) (time.Time, time.Time) {
	calendar := reading.Calendar()
	return reading.Later(start, calendar.From), reading.Earlier(end, calendar.Until)
}

func (h *Handlers) history(ctx context.Context, in *historyInput) (*huma.StreamResponse, error) {
	node, err := ownedNode(ctx, h.DB, in.SensorID)
	if err != nil {
		return nil, err
	}
	start, end := clampRange(in.StartTime.Time, in.EndTime.Time)
	csv := rest.WantsCSV(in.Format, in.Accept)
	if in.MaxPoints == 0 {
		return rest.Stream(h.rest, readingRows(node.ID, csv, in.Uncorrected), func(ctx context.Context) iter.Seq2[reading.Reading, error] {
			return h.Readings.Range(ctx, node, start, end)
		}), nil
	}
	buckets, err := h.Readings.Buckets(ctx, node, start, end, in.MaxPoints)
	if err != nil {
		return nil, err
	}
	return rest.Stream(h.rest, bucketRows(node.ID, csv), rest.Items(buckets)), nil
}

const (
	csvReadingHeader = "node_id,timestamp,temperature,humidity\n"
	csvBucketHeader  = "node_id,timestamp,temperature,humidity,min_temperature,max_temperature,min_humidity,max_humidity,count\n"
)

// readingRows writes readings. The characters of identifiers need no escapes in JSON and
// CSV.
func readingRows(nodeID string, csv, uncorrected bool) rest.RowEncoder[reading.Reading] {
	if csv {
		header := csvReadingHeader
		if uncorrected {
			header = strings.Replace(header, "\n", ",uncorrected_temperature,uncorrected_humidity\n", 1)
		}
		return rest.CSVRows(header, func(b []byte, r reading.Reading) []byte {
			b = append(rest.AppendText(b, nodeID), ',')
			b = rest.AppendCells(rest.AppendTime(b, r.Time), r.Temperature, r.Humidity)
			if uncorrected {
				temperature, humidity := r.Uncorrected()
				b = rest.AppendCells(b, reading.Value(temperature), reading.Value(humidity))
			}
			return append(b, '\n')
		})
	}
	if uncorrected {
		return rest.EncodedRows(func(r reading.Reading) exportedReading {
			temperature, humidity := r.Uncorrected()
			body := readingOf(r)
			return exportedReading{body.NodeID, body.Temperature, body.Humidity, body.Timestamp, temperature, humidity}
		})
	}
	prefix := `{"node_id":"` + nodeID + `","temperature":`
	return rest.JSONRows(func(b []byte, r reading.Reading) []byte {
		b = append(b, prefix...)
		b = rest.AppendNumber(b, r.Temperature, "null")
		b = append(b, `,"humidity":`...)
		b = rest.AppendNumber(b, r.Humidity, "null")
		b = append(b, `,"timestamp":"`...)
		return append(rest.AppendTime(b, r.Time), `"}`...)
	})
}

func bucketRows(nodeID string, csv bool) rest.RowEncoder[readings.Bucket] {
	if csv {
		return rest.CSVRows(csvBucketHeader, func(b []byte, k readings.Bucket) []byte {
			b = append(rest.AppendText(b, nodeID), ',')
			b = rest.AppendCells(rest.AppendTime(b, k.Start),
				k.AvgTemperature, k.AvgHumidity, k.MinTemperature, k.MaxTemperature, k.MinHumidity, k.MaxHumidity)
			return append(strconv.AppendInt(append(b, ','), k.Count, 10), '\n')
		})
	}
	return rest.EncodedRows(func(k readings.Bucket) bucketBody {
		return bucketBody{
			NodeID: nodeID, Timestamp: rest.UTC(k.Start), Count: k.Count,
			Temperature: reading.Pointer(k.AvgTemperature), MinTemperature: reading.Pointer(k.MinTemperature), MaxTemperature: reading.Pointer(k.MaxTemperature),
			Humidity: reading.Pointer(k.AvgHumidity), MinHumidity: reading.Pointer(k.MinHumidity), MaxHumidity: reading.Pointer(k.MaxHumidity),
		}
	})
}
