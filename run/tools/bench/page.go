package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed performance.md.tmpl
var pageText string

// endToEnd is the prefix of the end-to-end benchmarks, which have a table of their own.
const endToEnd = "EndToEnd/"

// row is a benchmark in its package's table.
type row struct{ Name, Time, Bytes, Allocations, Other string }

// section is the table of one package.
type section struct {
	Package string
	Rows    []row
}

// render writes the page.
func render(m machine, programs []program, results []result) (string, error) {
	var sections []section
	var endToEndRows, ratios []result
	for _, r := range results {
		if strings.HasPrefix(r.Name, endToEnd) {
			endToEndRows = append(endToEndRows, r)
			continue
		}
		if hasRatio(r) {
			ratios = append(ratios, r)
		}
		pkg := strings.TrimPrefix(r.Package, "coldaisle.dev/")
		if len(sections) == 0 || sections[len(sections)-1].Package != pkg {
			sections = append(sections, section{Package: pkg})
		}
		last := &sections[len(sections)-1]
		last.Rows = append(last.Rows, rowOf(r))
	}
	// The table of ratios also has those of the end-to-end benchmarks.
	for _, r := range endToEndRows {
		if hasRatio(r) {
			ratios = append(ratios, r)
		}
	}
	page, err := template.New("performance").Funcs(template.FuncMap{
		"mb": func(bytes int64) string { return strconv.FormatFloat(float64(bytes)/1e6, 'f', 1, 64) + " MB" },
		"of": func(unit string, r result) string {
			if value, ok := r.value(unit); ok {
				return number(value)
			}
			return ""
		},
		"nonzero": func(value float64) string {
			if value == 0 {
				return ""
			}
			return number(value)
		},
		"rate":   func(r result) string { return strings.TrimSuffix(strings.TrimPrefix(r.Name, endToEnd), "/s") },
		"ratios": ratioText,
	}).Parse(pageText)
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	var out strings.Builder
	err = page.Execute(&out, map[string]any{
		"Machine": m, "Programs": programs, "Ends": endToEndRows, "Ratios": ratios, "Sections": sections,
	})
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	return out.String(), nil
}

// hasRatio reports whether a benchmark reports a ratio.
func hasRatio(r result) bool { return ratioText(r) != "" }

// ratioText lists the ratios of a benchmark; a unit that ends in ratio is one.
func ratioText(r result) string {
	var parts []string
	for _, m := range r.Metrics {
		if name, ok := strings.CutSuffix(m.Unit, "ratio"); ok {
			parts = append(parts, strings.TrimSpace(number(m.Value)+" "+strings.Trim(name, "-")))
		}
	}
	return strings.Join(parts, ", ")
}

func rowOf(r result) row {
	line := row{Name: r.Name}
	var other []string
	for _, m := range r.Metrics {
		switch m.Unit {
		case "ns/op":
			line.Time = duration(m.Value)
		case "B/op":
			line.Bytes = number(m.Value)
		case "allocs/op":
			line.Allocations = number(m.Value)
		default:
			other = append(other, number(m.Value)+" "+m.Unit)
		}
	}
	line.Other = strings.Join(other, ", ")
	return line
}

// number shows three significant digits, and whole numbers as they are.
func number(value float64) string {
	if value == float64(int64(value)) || value >= 1000 || value <= -1000 {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

// duration shows nanoseconds in the largest unit that leaves a number above one.
func duration(ns float64) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		if ns >= float64(unit.size) {
			return number(ns/float64(unit.size)) + " " + unit.name
		}
	}
	return number(ns) + " ns"
}
