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
	dayParts  = 48
	partWidth = 24 * time.Hour / dayParts
)

const (
	// rounds is the number of answers over which all sensors' days are reread, because
	// reading them all is the slowest part. In between, newest readings are added.
	rounds    = 40
	minReread = 50 // sensors
	// maxPause is the time without an answer after which all days are reread at once.
	maxPause = 10 * time.Minute
)

// nothing stands for a half hour without a reading.
const nothing = math.MinInt16

// day is what the sparklines show: of each sensor the highest temperature of each half
// hour, in tenths of a degree, by their number from midnight.
type day struct {
	start time.Time // of the first half hour
	read  time.Time
	lines map[string]*[dayParts]int16
	next  int                  // index of the next sensor to reread
	began map[string]time.Time // when learning of a node began; of those that it still learns
}

func partOf(at time.Time) int { return int(at.UTC().Sub(at.UTC().Truncate(24*time.Hour)) / partWidth) }

func tenths(temperature float64) int16 { return int16(math.Round(temperature * 10)) }

// spotReader reads what the sparklines show.
type spotReader interface {
	HotSpots(ctx context.Context, customerID int64, since time.Time, nodes []string) ([]incidents.HotSpots, error)
}

// refresh advances the day. It rereads the days of some sensors; at first, of all.
func (d *day) refresh(ctx context.Context, metadata spotReader, customer int64, live []incidents.LiveSensor, now time.Time) error {
	start := now.UTC().Truncate(partWidth).Add(-(dayParts - 1) * partWidth)
	before := *d
	if pause := now.Sub(before.read); before.lines == nil || pause > maxPause || pause < 0 {
		before = day{start: start}
	}
	var reread []string // nil for all
	if before.lines != nil {
		reread = make([]string, min(len(live), max(minReread, len(live)/rounds)))
		for i := range reread {
			reread[i] = live[(before.next+i)%len(live)].NodeID
		}
	}
	spots, err := metadata.HotSpots(ctx, customer, start, reread)
	if err != nil {
		return err
	}
	*d = day{start: start, read: now, lines: make(map[string]*[dayParts]int16, len(live)), next: before.next + len(reread), began: before.began}
	for _, l := range live {
		line := before.lines[l.NodeID]
		if line == nil {
			line = emptyLine()
		}
		for at := before.start; at.Before(start); at = at.Add(partWidth) {
			line[partOf(at)] = nothing
		}
		d.lines[l.NodeID] = line
	}
	for _, id := range reread {
		d.lines[id] = emptyLine()
	}
	for _, s := range spots {
		if line := d.lines[s.NodeID]; line != nil {
			for i, part := range s.Parts {
				line[part] = tenths(s.Temperatures[i])
			}
		}
	}
	for _, l := range live {
		if l.TemperatureAt != nil && !l.TemperatureAt.Before(start) {
			newest := &d.lines[l.NodeID][partOf(*l.TemperatureAt)]
			*newest = max(*newest, tenths(*l.Temperature))
		}
	}
	return nil
}

func emptyLine() *[dayParts]int16 {
	var line [dayParts]int16
	for i := range line {
		line[i] = nothing
	}
	return &line
}

// enoughParts is the number of half hours with a reading after which learning knows what is
// usual for a sensor, and its changes over two hours.
const enoughParts = 4

// firstReader reads what was measured first.
type firstReader interface {
	FirstReadings(ctx context.Context, customerID int64, nodes []string, from, until time.Time) ([]incidents.Measured, error)
}

// begin notes when learning of the nodes began that it learns. A node is asked for once.
func (d *day) begin(ctx context.Context, metadata firstReader, customer int64, live []incidents.LiveSensor, now time.Time) error {
	began, asked := map[string]time.Time{}, []string{}
	for _, l := range live {
		if d.judgedBy(l) != "learning" {
			continue
		}
		if since, ok := d.began[l.NodeID]; ok {
			began[l.NodeID] = since
		} else {
			asked = append(asked, l.NodeID)
		}
	}
	first, err := metadata.FirstReadings(ctx, customer, asked, d.start, now)
	if err != nil {
		return err
	}
	for _, m := range first {
		began[m.NodeID] = m.Timestamp
	}
	d.began = began
	return nil
}

// judgedBy returns the judged_by of a sensor, see [liveSensor].
func (d *day) judgedBy(l incidents.LiveSensor) string {
	heard := 0
	for _, value := range d.lines[l.NodeID] {
		if value != nothing {
			heard++
		}
	}
	switch {
	case l.JudgedBy == "":
		return "nothing"
	case heard < enoughParts && !l.Anomalous: // what an anomaly lasts of was judged
		return "learning"
	default:
		return string(l.JudgedBy)
	}
}

// sparkline encodes a sensor's day, see [liveSensor].
func (d *day) sparkline(node string) string {
	line, first := d.lines[node], partOf(d.start)
	end := dayParts
	for end > 0 && line[(first+end-1)%dayParts] == nothing {
		end--
	}
	var text []byte
	before := int16(0)
	for i := range end {
		if i > 0 {
			text = append(text, ',')
		}
		if value := line[(first+i)%dayParts]; value != nothing {
			text = strconv.AppendInt(text, int64(value-before), 10)
			before = value
		}
	}
	return string(text)
}
