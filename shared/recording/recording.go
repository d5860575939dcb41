// Package recording reads recordings: CSV files of readings. The node simulator
// replays them, and run/tools/ml evaluates on them.
package recording

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
)

// Row is one row of a recording.
type Row struct {
	Line        int // in the file, the header being 1
	NodeID      string
	Room        string    // as written; empty when the file has none
	Time        time.Time // of the record; the gateway stamps a time of its own
	Temperature float64   // °C
	Humidity    float64   // % relative humidity
	Label       string    // as written; empty when the file has none
}

// Recording is the content of a file.
type Recording struct {
	Nodes              []string         // in order of first appearance
	Rows               map[string][]Row // of each node, oldest first
	Total              int              // rows of the file, including those left out
	First              time.Time
	WithoutTemperature int // rows left out because they have no temperature
	WithoutHumidity    int // rows left out because they have no humidity
}

// Read reads a whole CSV file with a header that names at least node_id,
// timestamp and temperature, in any order. humidity replaces missing values; nil
// leaves such rows out. Rows of one node with equal times keep
// the file's order. The error names the line.
func Read(file io.Reader, humidity *float64) (*Recording, error) {
	buffered := bufio.NewReader(file)
	if bom, err := buffered.Peek(3); err == nil && bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = buffered.Discard(3)
	}
	lines := csv.NewReader(buffered)
	lines.ReuseRecord = true
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	indexes, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	r := &Recording{Rows: map[string][]Row{}}
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read series: %w", err)
		}
		line, _ := lines.FieldPos(0)
		if err := r.add(indexes, record, line, humidity); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	for _, rows := range r.Rows {
		slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Line, b.Line)) })
		if r.First.IsZero() || rows[0].Time.Before(r.First) {
			r.First = rows[0].Time
		}
	}
	return r, nil
}

// columnIndexes are positions in a record, -1 if the file has no such column.
type columnIndexes struct{ node, time, temperature, humidity, label, room int }

func parseHeader(header []string) (columnIndexes, error) {
	find := func(name string) int {
		return slices.IndexFunc(header, func(h string) bool { return strings.EqualFold(strings.TrimSpace(h), name) })
	}
	c := columnIndexes{find("node_id"), find("timestamp"), find("temperature"), find("humidity"), find("label"), find("room")}
	if c.node < 0 || c.time < 0 || c.temperature < 0 {
		return c, fmt.Errorf("header must name node_id, timestamp and temperature: got %q", strings.Join(header, ","))
	}
	return c, nil
}

func (r *Recording) add(c columnIndexes, record []string, line int, humidity *float64) error {
	r.Total++
	row := Row{Line: line}
	id := record[c.node]
	if err := reading.ValidateNodeID(id); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	var err error
	if row.Time, err = parseTime(record[c.time]); err != nil {
		return err
	}
	var given bool
	if row.Temperature, given, err = parseValue(record[c.temperature]); err != nil {
		return fmt.Errorf("temperature: %w", err)
	}
	if !given {
		r.WithoutTemperature++
		return nil
	}
	given = false
	if c.humidity >= 0 {
		if row.Humidity, given, err = parseValue(record[c.humidity]); err != nil {
			return fmt.Errorf("humidity: %w", err)
		}
	}
	switch {
	case given:
	case humidity != nil:
		row.Humidity = *humidity
	default:
		r.WithoutHumidity++
		return nil
	}
	if c.label >= 0 {
		row.Label = strings.Clone(record[c.label])
	}
	if c.room >= 0 {
		row.Room = strings.Clone(record[c.room])
	}
	rows, known := r.Rows[id]
	if known {
		row.NodeID = rows[0].NodeID
	} else {
		row.NodeID = strings.Clone(id)
		r.Nodes = append(r.Nodes, row.NodeID)
	}
	r.Rows[row.NodeID] = append(rows, row)
	return nil
}

// parseTime reads ISO 8601; without an offset it is UTC.
func parseTime(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("timestamp is not ISO 8601: got %q", text)
}

// parseValue reads a number. A field that is empty or says that the value is missing has
// none.
func parseValue(text string) (value float64, given bool, err error) {
	text = strings.TrimSpace(text)
	switch strings.ToLower(text) {
	case "", "nan", "na", "n/a", "null", "none":
		return 0, false, nil
	}
	value, err = strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(value, 0) {
		return 0, false, fmt.Errorf("not a number: %q", text)
	}
	return value, true, nil
}
