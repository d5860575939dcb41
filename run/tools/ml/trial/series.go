package trial

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/recording"
)

// Series is a recorded series of one node, oldest first, each instant once.
type Series struct {
	ID, Room string            // Room is empty where the file names none
	Readings []reading.Reading // a humidity that nobody measured is NaN
	Labels   []bool            // whether a reading is anomalous; nil where the file does not say
}

// Skipped counts the rows of a file that gave no reading.
type Skipped struct {
	Empty      int // without a temperature
	Impossible int // with a value that no node can send, or of a time that no reading can have
	Twice      int // of an instant that the node has already
}

// ReadSeries reads recorded series; see [recording.Read] for its form. A humidity that is missing becomes NaN.
func ReadSeries(r io.Reader) ([]Series, Skipped, error) {
	recorded, err := recording.Read(r, new(math.NaN()))
	if err != nil {
		return nil, Skipped{}, err
	}
	skipped := Skipped{Empty: recorded.WithoutTemperature}
	var nodes []Series
	for _, id := range recorded.Nodes {
		n := Series{ID: id, Room: recorded.Rows[id][0].Room}
		labelled := false
		for _, row := range recorded.Rows[id] {
			wrong, given, err := parseLabel(row.Label)
			if err != nil {
				return nil, skipped, fmt.Errorf("line %d: %w", row.Line, err)
			}
			humidity := row.Humidity
			if math.IsNaN(humidity) {
				humidity = reading.MinHumidity
			}
			if !reading.InCalendar(row.Time) || reading.ValidateMeasurement(row.Temperature, humidity) != nil {
				skipped.Impossible++
				continue
			}
			at := reading.TruncateTime(row.Time)
			if len(n.Readings) > 0 && n.Readings[len(n.Readings)-1].Time.Equal(at) {
				skipped.Twice++
				continue
			}
			n.Readings = append(n.Readings, reading.Reading{
				NodeID: id, MessageID: strconv.Itoa(row.Line), Time: at, Temperature: row.Temperature, Humidity: row.Humidity,
			})
			n.Labels = append(n.Labels, wrong)
			labelled = labelled || given
		}
		if !labelled {
			n.Labels = nil
		}
		if len(n.Readings) > 0 {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil, skipped, fmt.Errorf("no readings in %d rows", recorded.Total)
	}
	return nodes, skipped, nil
}

// parseLabel reads a label; an empty field and what tables write for a missing value are none.
func parseLabel(text string) (anomalous, given bool, err error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "nan", "na", "n/a", "null", "none":
		return false, false, nil
	case "0", "0.0", "false", "no", "normal":
		return false, true, nil
	case "1", "1.0", "true", "yes", "anomaly", "anomalous":
		return true, true, nil
	default:
		return false, false, fmt.Errorf("label %q: say 1 for an anomaly, 0 for none", text)
	}
}

// The pace of our nodes, and how much slower a series may be recorded for the
// hour of a window to hold enough of it.
const (
	targetInterval = 30 * time.Second
	maxInterval    = 60 * time.Second
)

// Interval is the median time between two readings; 0 for fewer than two.
func (n *Series) Interval() time.Duration {
	gaps := make([]time.Duration, 0, len(n.Readings))
	for i := 1; i < len(n.Readings); i++ {
		gaps = append(gaps, n.Readings[i].Time.Sub(n.Readings[i-1].Time))
	}
	return median(gaps)
}

// Slow reports whether a node was recorded less often than every minute.
func (n *Series) Slow() bool { return n.Interval() > maxInterval }

// Quickened returns a node that is [Series.Slow] as if it had sent every 30 s, with gaps that shrink by as
// much; others unchanged. It still tells the quality of the forest, and nothing of what happens within 20 s.
func (n Series) Quickened() Series {
	if !n.Slow() {
		return n
	}
	first, quicker := n.Readings[0].Time, float64(targetInterval)/float64(n.Interval())
	n.Readings = slices.Clone(n.Readings)
	for i := range n.Readings {
		since := float64(n.Readings[i].Time.Sub(first))
		n.Readings[i].Time = reading.TruncateTime(first.Add(time.Duration(since * quicker)))
	}
	return n
}
