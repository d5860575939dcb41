package records

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store/records"
)

// record is the content of a record, without readings.
type record struct {
	customer   int64
	room       records.Room
	month      string // 2026-11
	start, end time.Time
	over       bool // the month is over; else end is now
	revision   int  // 0 if the month is not over
	members    []records.Member
	files      []records.File
}

// archive writes a ZIP whose bytes follow from its content: the same record gives the same
// file.
type archive struct {
	zip    *zip.Writer
	at     time.Time // of its files
	listed []string
}

// file writes a file with a function, and lists its checksum.
func (a *archive) file(name string, write func(w io.Writer) error) error {
	w, err := a.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: a.at})
	if err != nil {
		return fmt.Errorf("file %s: %w", name, err)
	}
	sum := sha256.New()
	if err := write(io.MultiWriter(w, sum)); err != nil {
		return err
	}
	a.listed = append(a.listed, fmt.Sprintf(`{"sha256": "%s", "file": %q}`, hex.EncodeToString(sum.Sum(nil)), name))
	return nil
}

func (a *archive) bytes(name string, content []byte) error {
	return a.file(name, func(w io.Writer) error {
		_, err := w.Write(content)
		return err //nolint:wrapcheck // the archive's
	})
}

// content writes all files but the manifest, and returns a digest of them.
func (a *archive) content(ctx context.Context, r record, table readings.Reader) (digest string, err error) {
	for _, f := range r.files {
		if err := a.bytes(f.Name, f.Content); err != nil {
			return "", err
		}
	}
	sensors := map[string]*coverage{}
	if err := a.file("readings.csv", func(w io.Writer) error { return writeReadings(ctx, w, r, table, sensors) }); err != nil {
		return "", err
	}
	if err := a.bytes("coverage.csv", coverageCSV(r, sensors)); err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, line := range a.listed {
		_, _ = io.WriteString(sum, line+"\n") // a hash takes all
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sign returns the manifest of what is written, and its signature.
func (a *archive) sign(r record, keys *Keys) (manifest, signature []byte, err error) {
	state := map[bool]string{true: "complete", false: "the month is not over"}[r.over]
	encoded, err := rest.Encode(struct {
		Room     int64     `json:"room_id"`
		Name     string    `json:"room"`
		Month    string    `json:"month"`
		From     rest.Time `json:"from"`
		Until    rest.Time `json:"until"`
		State    string    `json:"state"`
		Revision int       `json:"revision"`
	}{r.room.RoomID, r.room.Name, r.month, rest.UTC(r.start), rest.UTC(r.end), state, r.revision})
	if err != nil {
		return nil, nil, err
	}
	// A file a line, for sed and sha256sum.
	manifest = fmt.Appendf(nil, "{\n\"record\": %s,\n\"key_id\": \"%s\",\n\"files\": [\n", encoded, keys.known[0].id)
	for i, line := range a.listed {
		manifest = append(manifest, line+map[bool]string{true: ",\n", false: "\n"}[i < len(a.listed)-1]...)
	}
	manifest = append(manifest, "]\n}\n"...)
	return manifest, ed25519.Sign(keys.key, manifest), nil
}

func (a *archive) finish(manifest, signature []byte) error {
	if err := a.bytes("manifest.json", manifest); err != nil {
		return err
	}
	if err := a.bytes("manifest.sig", signature); err != nil {
		return err
	}
	if err := a.zip.Close(); err != nil {
		return fmt.Errorf("end of the archive: %w", err)
	}
	return nil
}

// writeReadings writes all readings of the room, sensor after sensor, oldest first, without
// holding them in memory, and counts them.
func writeReadings(ctx context.Context, w io.Writer, r record, table readings.Reader, sensors map[string]*coverage) error {
	line := []byte("sensor_id,timestamp,message_id,temperature,humidity,uncorrected_temperature,uncorrected_humidity\n")
	nodes := make([]readings.NodeRef, len(r.members))
	for i, m := range r.members {
		nodes[i] = m.NodeRef
	}
	var current *coverage
	id := ""
	if len(nodes) > 0 {
		for read, err := range table.Ranges(ctx, nodes, r.start, r.end) {
			if err != nil {
				return fmt.Errorf("readings: %w", err)
			}
			if len(line) > 32<<10 {
				if _, err := w.Write(line); err != nil {
					return err //nolint:wrapcheck // the archive's
				}
				line = line[:0]
			}
			if current == nil || id != read.NodeID {
				id, current = read.NodeID, &coverage{}
				sensors[id] = current
			}
			current.add(read)
			line = append(rest.AppendText(line, read.NodeID), ',')
			line = append(rest.AppendTime(line, read.Time), ',')
			line = rest.AppendText(line, read.MessageID)
			temperature, humidity := read.Uncorrected()
			line = rest.AppendCells(line, read.Temperature, read.Humidity, reading.Value(temperature), reading.Value(humidity))
			line = append(line, '\n')
		}
	}
	_, err := w.Write(line)
	return err //nolint:wrapcheck // the archive's
}

// longestGap bounds the gaps that are counted: a day, in seconds.
const longestGap = 24 * 3600

// coverage counts the readings of a sensor, and how far apart those with the same quantities are.
type coverage struct {
	received int64
	series   [4]series // by the quantities: 1 for temperature, 2 for humidity
}

type series struct {
	received int64
	gaps     map[int]int64 // by whole seconds
	last     reading.Reading
}

func (c *coverage) add(r reading.Reading) {
	c.received++
	has := 0
	for i, value := range [...]float64{r.Temperature, r.Humidity} {
		if reading.Has(value) {
			has |= 1 << i
		}
	}
	s := &c.series[has]
	s.received++
	if gap := int(math.Round(r.Time.Sub(s.last.Time).Seconds())); s.received > 1 && r.Channel == s.last.Channel && gap >= 0 && gap <= longestGap {
		if s.gaps == nil {
			s.gaps = map[int]int64{}
		}
		s.gaps[gap]++
	}
	s.last = r
}

// expected returns the usual interval in seconds, 0 if there is none, and the readings expected in a time.
// Those of a quantity that always comes apart are expected by its own interval.
func (c *coverage) expected(in time.Duration) (interval int, readings int64) {
	main := 0
	for has := range c.series {
		if c.series[has].received > c.series[main].received {
			main = has
		}
	}
	for has := range c.series {
		if s := c.series[has].interval(); s > 0 && (has == main || has&main == 0) {
			readings += int64(in.Seconds()) / int64(s)
		}
	}
	return c.series[main].interval(), readings
}

// interval is the most frequent time between two readings, in seconds; 0 if there is none. A Zigbee sensor sends three
// readings at once: the most frequent is of those apart, and the interval a third of it.
func (s *series) interval() int {
	most := func(from int, weight func(gap int) int64) (found int) {
		for gap := range s.gaps {
			if gap > from && (found == 0 || cmp.Or(cmp.Compare(weight(gap), weight(found)), cmp.Compare(found, gap)) > 0) {
				found = gap
			}
		}
		return found
	}
	longest := most(0, func(gap int) int64 { return s.gaps[gap] * int64(min(gap, 3600)) }) // in all; of an outage, an hour
	usual := most(longest/10, func(gap int) int64 { return s.gaps[gap] })
	atOnce, apart := 0.0, 0.0
	for gap, count := range s.gaps {
		if 10*gap <= usual {
			atOnce += float64(count)
		} else {
			apart += float64(count)
		}
	}
	return usual / (1 + int(math.Round(atOnce/max(1, apart))))
}

// coverageCSV lists for each sensor the readings expected by its own interval, and those received.
func coverageCSV(r record, sensors map[string]*coverage) []byte {
	text := []byte("sensor_id,name,hours_in_room,interval_s,expected,received\n")
	for _, m := range r.members {
		c := cmp.Or(sensors[m.ID], &coverage{})
		interval, expected := "", ""
		if s, count := c.expected(m.Time); s > 0 {
			interval, expected = strconv.Itoa(s), strconv.FormatInt(count, 10)
		}
		text = rest.AppendLine(text, m.ID, m.Name, strconv.FormatFloat(m.Time.Hours(), 'f', 2, 64), interval, expected, strconv.FormatInt(c.received, 10))
	}
	return text
}
