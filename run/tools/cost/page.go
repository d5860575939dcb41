package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"text/template"
)

//go:embed cost.md.tmpl
var pageText string

// render writes the page.
func render() (string, error) {
	message, err := messageBytes()
	if err != nil {
		return "", err
	}
	var costs []monthlyCost
	for i, nodes := range []int{10, 10, 100, 1_000, 20_000, 100_000} {
		costs = append(costs, compute(nodes, i == 0, message))
	}
	page, err := template.New("cost").Funcs(template.FuncMap{
		"dollars": dollars, "count": count, "size": size,
	}).Parse(pageText)
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	visits, idle := pageCounts()
	var out strings.Builder
	err = page.Execute(&out, map[string]any{
		"Bills": costs, "Message": message, "Row": rowBytes, "RawRow": rawRow, "HourRow": hourRow, "OldOneIn": 1 / oldShare,
		"Visit": visits.of("sensor"), "OtherVisit": visits.dearest(), "Idle": idle.of("sensor"), "OtherIdle": idle.dearest(),
	})
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	return out.String(), nil
}

// dollars shows cents only where they matter.
func dollars(amount float64) string {
	if amount < 100 {
		return "$" + strconv.FormatFloat(amount, 'f', 2, 64)
	}
	return "$" + count(amount)
}

// count groups digits by thousands.
func count(n any) string {
	var digits string
	switch n := n.(type) {
	case int:
		digits = strconv.Itoa(n)
	case float64:
		digits = strconv.FormatFloat(n, 'f', 0, 64)
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// size shows bytes in the largest unit that leaves a number above one.
func size(bytes float64) string {
	for _, unit := range []struct {
		name  string
		bytes float64
	}{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if bytes >= unit.bytes {
			return strconv.FormatFloat(bytes/unit.bytes, 'f', 1, 64) + " " + unit.name
		}
	}
	return count(bytes) + " bytes"
}
