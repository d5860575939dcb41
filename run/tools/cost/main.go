// Cost computes what the pipeline costs per month from list prices and writes
// the page about it:
//
//	go run ./run/tools/cost > docs/cost.md
//
// A test keeps the page equal to what this prints. Change an assumption in
// model.go to see what it does.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("cost", func(context.Context) error {
		page, err := render()
		fmt.Print(page)
		return err
	})
}

//go:embed cost.md.tmpl
var pageText string

// render writes the page.
func render() (string, error) {
	size, err := messageBytes()
	if err != nil {
		return "", err
	}
	var costs []monthlyCost
	for i, nodes := range []int{10, 10, 100, 1_000, 20_000, 100_000} {
		costs = append(costs, compute(nodes, i == 0, size))
	}
	page, err := template.New("cost").Funcs(template.FuncMap{
		"dollars": dollars, "count": count,
	}).Parse(pageText)
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	visit, untouched := pageRequests()
	var out strings.Builder
	err = page.Execute(&out, map[string]any{
		"Bills": costs, "Message": size, "Row": rowBytes, "RawRow": rawRow, "HourRow": hourRow, "OldOneIn": 1 / oldShare,
		"Visit": visit, "Untouched": untouched,
	})
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	return out.String(), nil
}

// dollars shows cents only where they matter.
func dollars(amount float64) string {
	if amount < 100 {
		return "$" + message.NewPrinter(language.English).Sprint(number.Decimal(amount, number.Scale(2)))
	}
	return "$" + count(amount)
}

// count groups digits by thousands.
func count(n any) string {
	return message.NewPrinter(language.English).Sprint(number.Decimal(n, number.MaxFractionDigits(0)))
}
