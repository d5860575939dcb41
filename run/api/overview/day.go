package overview

import (
	"context"
	"math"
	"strconv"
	"time"

	"coldaisle.dev/shared/store/incidents"
)

// The day of a sparkline, in half hours.
const (
	halfHours = 48
	halfHour  = 24 * time.Hour / halfHours
)

const (
	// rounds is the number of answers over which all sensors' days are reread, because
	// reading them all is the slowest part. In between, newest readings are added.
	rounds    = 80
	minReread = 25 // sensors
	// maxPause is the time without an answer after which all days are reread at once.
	maxPause = 10 * time.Minute
)

// nothing stands for a half hour without a reading.
const nothing = math.MinInt16

// day is the data of the sparklines: each sensor's highest temperature in each half hour, in
// tenths of a degree, by the number of the half hour from midnight.
type day struct {
	start time.Time // of the first half hour
	read  time.Time
	nodes []string // of the last answer
	lines map[string]*line
	next  int                  // index of the next sensor to reread
	began map[string]time.Time // when learning of a node began, if it still learns
}

type line struct {
	highest [halfHours]int16
	text    string // see [liveSensor]; empty after a change of these
}

func halfHourOf(at time.Time) int {
	return int(at.UTC().Sub(at.UTC().Truncate(24*time.Hour)) / halfHour)
}

func tenths(temperature float64) int16 { return int16(math.Round(temperature * 10)) }

// spotReader reads the temperatures of the sparklines.
type spotReader interface {
	HotSpots(ctx context.Context, customerID int64, since time.Time, nodes []string) ([]incidents.HotSpots, error)
}

// reread is the data that were read anew for an answer.
type reread struct {
	start time.Time
	nodes []string // nil for all
	spots []incidents.HotSpots
}

// look rereads the days of some sensors of the last answer, the first time of all.
func (d *day) look(ctx context.Context, metadata spotReader, customer int64, now time.Time) (reread, error) {
	anew := reread{start: now.UTC().Truncate(halfHour).Add(-(halfHours - 1) * halfHour)}
	if pause := now.Sub(d.read); d.lines == nil || pause > maxPause || pause < 0 {
		*d = day{start: anew.start, began: d.began}
	} else {
		anew.nodes = make([]string, min(len(d.nodes), max(minReread, len(d.nodes)/rounds)))
		for i := range anew.nodes {
			anew.nodes[i] = d.nodes[(d.next+i)%len(d.nodes)]
		}
	}
	var err error
	anew.spots, err = metadata.HotSpots(ctx, customer, anew.start, anew.nodes)
	return anew, err
}

// advance brings the day to that of the sensors, with what was reread.
func (d *day) advance(anew reread, live []incidents.LiveSensor, now time.Time) {
	start, lines := d.start, d.lines
	for _, id := range anew.nodes {
		delete(lines, id)
	}
	d.start, d.read, d.next = anew.start, now, d.next+len(anew.nodes)
	d.nodes, d.lines = make([]string, len(live)), make(map[string]*line, len(live))
	for i, l := range live {
		of := lines[l.NodeID]
		if of == nil {
			of = emptyLine()
		}
		for at := start; at.Before(d.start); at = at.Add(halfHour) {
			of.highest[halfHourOf(at)], of.text = nothing, ""
		}
		d.nodes[i], d.lines[l.NodeID] = l.NodeID, of
	}
	for _, s := range anew.spots {
		if of := d.lines[s.NodeID]; of != nil {
			for i, at := range s.HalfHours {
				of.highest[at] = tenths(s.Temperatures[i])
			}
		}
	}
	for _, l := range live {
		if l.TemperatureAt == nil || l.TemperatureAt.Before(d.start) {
			continue
		}
		of := d.lines[l.NodeID]
		if at, newest := halfHourOf(*l.TemperatureAt), tenths(*l.Temperature); newest > of.highest[at] {
			of.highest[at], of.text = newest, ""
		}
	}
}

func emptyLine() *line {
	var l line
	for i := range l.highest {
		l.highest[i] = nothing
	}
	return &l
}

// enoughHalfHours is the number of half hours with a reading after which learning has what is
// usual for a sensor, and its changes over two hours.
const enoughHalfHours = 4

// begin records when learning began for the nodes that it still learns. Each is queried once.
func (d *day) begin(ctx context.Context, metadata incidents.Store, customer int64, live []incidents.LiveSensor, troubled map[string]incidents.Troubled, now time.Time) error {
	began, unknown := map[string]time.Time{}, []string{}
	for _, l := range live {
		if d.judgedBy(l, troubled[l.NodeID].Anomalous) != "learning" {
			continue
		}
		if since, ok := d.began[l.NodeID]; ok {
			began[l.NodeID] = since
		} else {
			unknown = append(unknown, l.NodeID)
		}
	}
	first, err := metadata.FirstReadings(ctx, customer, unknown, d.start, now)
	if err != nil {
		return err
	}
	for _, m := range first {
		began[m.NodeID] = m.Timestamp
	}
	d.began = began
	return nil
}

// judgedBy returns the judged_by of a sensor, see [liveSensor]; anomalous says that it has a lasting anomaly.
func (d *day) judgedBy(l incidents.LiveSensor, anomalous bool) string {
	heard := 0
	for _, value := range d.lines[l.NodeID].highest {
		if value != nothing {
			heard++
		}
	}
	switch {
	case l.JudgedBy == "":
		return "nothing"
	case heard < enoughHalfHours && !anomalous && l.TemperatureAt != nil && // else it was judged, or has no half hours
		(l.HumidityAt == nil || l.HumidityAt.Sub(*l.TemperatureAt) < 24*time.Hour):
		return "learning"
	default:
		return string(l.JudgedBy)
	}
}

// sparkline encodes a sensor's day, see [liveSensor].
func (d *day) sparkline(node string) string {
	of, first := d.lines[node], halfHourOf(d.start)
	if of.text != "" {
		return of.text
	}
	end := halfHours
	for end > 0 && of.highest[(first+end-1)%halfHours] == nothing {
		end--
	}
	var text []byte
	before := int16(0)
	for i := range end {
		if i > 0 {
			text = append(text, ',')
		}
		if value := of.highest[(first+i)%halfHours]; value != nothing {
			text = strconv.AppendInt(text, int64(value-before), 10)
			before = value
		}
	}
	of.text = string(text)
	return of.text
}
