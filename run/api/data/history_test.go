package data

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// TestCSVCells writes the identifiers and numbers that a spreadsheet could take for formulas. Contract 5.4.
func TestCSVCells(t *testing.T) {
	t.Parallel()
	rows := readingRows("-2:A1", true, false)
	text := string(rows.Append([]byte(rows.Begin), reading.Reading{Time: time.Unix(0, 0), Temperature: -12.5, Humidity: 1e-7}))
	records := must.Get(csv.NewReader(strings.NewReader(text)).ReadAll())(t)
	must.Equal(t, "cells", []string{"'-2:A1", "-12.5", "0.0000001"}, []string{records[1][0], records[1][2], records[1][3]})
	buckets := bucketRows("node-1", true)
	text = string(buckets.Append([]byte(buckets.Begin), readings.Bucket{Stats: readings.Stats{Count: 2}}))
	must.Equal(t, text, 2, len(must.Get(csv.NewReader(strings.NewReader(text)).ReadAll())(t)))
}
