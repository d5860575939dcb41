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
	// rounds is in how many answers all sensors' days are read anew. To read them all
	// takes longer than all else; meanwhile the newest readings go on.
	rounds    = 16
	minReread = 100 // sensors
	// maxPause is after how long without an answer all are read again.
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
	next  int // sensor to be read anew
}

func partOf(at time.Time) int { return int(at.UTC().Sub(at.UTC().Truncate(24*time.Hour)) / partWidth) }

func tenths(temperature float64) int16 { return int16(math.Round(temperature * 10)) }

// spotReader reads what the sparklines show.
type spotReader interface {
	HotSpots(ctx context.Context, customerID int64, since time.Time, nodes []string) ([]incidents.HotSpots, error)
}

// refresh moves the day on. It reads the days of some sensors, and those of all at first.
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
	*d = day{start: start, read: now, lines: make(map[string]*[dayParts]int16, len(live)), next: before.next + len(reread)}
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
		if l.Timestamp != nil && !l.Timestamp.Before(start) {
			newest := &d.lines[l.NodeID][partOf(*l.Timestamp)]
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

// enoughParts is in how many half hours of the day a sensor must have been heard for its
// changes in two hours, and what is usual for it, to be known.
const enoughParts = 4

// judgedBy is by what learning judges a sensor, as [liveSensor] has it.
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
	case heard < enoughParts:
		return "learning"
	default:
		return string(l.JudgedBy)
	}
}

// sparkline writes a sensor's day as [liveSensor] has it.
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
