package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

func TestPageIsUpToDate(t *testing.T) {
	t.Parallel()
	want := must.Get(render())(t)
	got := must.Get(os.ReadFile("../../../docs/cost.md"))(t)
	must.Equal(t, "docs/cost.md is not what go run ./run/tools/cost prints", want, string(got))
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	must.Hold(t, math.Abs(got-want) <= 0.01*math.Max(1, want), "%s: %g, want about %g", what, got, want)
}

// TestModel holds the formulas to figures worked out by hand.
func TestModel(t *testing.T) {
	t.Parallel()
	// A TiB and the free 10 GiB, three times a message of 1,000 bytes, and its alerts.
	near(t, "Pub/Sub", pubsub((tib+10*gib)/(3*1000+alertShare*2*1000), 1000), 40)
	must.Equal(t, "Pub/Sub within the free tier", 0.0, pubsub(1000, 2000))
	// Two functions busy all month, one idle: 2 × 2,628,000 s.
	near(t, "functions", functions(1000, 0), (2*2_628_000-180_000+2_628_000*(1-math.Exp(-0.1)))*0.000024+
		(2*2_628_000*0.5+2_628_000*(1-math.Exp(-0.1))*0.5-360_000)*0.0000025)
	near(t, "least scan", scannedBytes(1)/mib, 10)
	near(t, "scan of a partition that is one block", scannedBytes(100*mib)/mib, 100)
	near(t, "scan of one node of many blocks", scannedBytes(1000*block)/block, 1)
	message, err := messageBytes()
	must.Hold(t, err == nil && message <= 2.5*kib, "a message is %g bytes, %v", message, err)
}

// TestIntervalsAreThoseOfTheCode holds the assumptions to the code that polls. The requests
// of pages are counted in the browser.
func TestIntervalsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	source := must.Get(os.ReadFile("../../dashboard/src/api/queries.ts"))(t)
	line := fmt.Sprintf("export const refreshEvery = %g * second;", poll)
	must.Equal(t, "the page says "+line, true, strings.Contains(string(source), line))
}

// TestBudgetFollows holds the defaults of terraform's monthly_budget to the costs of 10 and of 1,000 nodes.
func TestBudgetFollows(t *testing.T) {
	t.Parallel()
	sizes := string(must.Get(os.ReadFile("../../../terraform/size.tf"))(t))
	for _, c := range []struct {
		size  string
		nodes int
		step  float64
	}{{"small", 10, 5}, {"standard", 1000, 50}} {
		cost := compute(c.nodes, c.size == "small", must.Get(messageBytes())(t))
		_, size, _ := strings.Cut(sizes, "    "+c.size+" = {")
		size, _, _ = strings.Cut(size, "\n    }\n")
		budget := fmt.Sprintf("monthly_budget = %g\n", c.step*math.Ceil(cost.Total/c.step))
		must.Contain(t, c.size, size+"\n", budget, fmt.Sprintf("tier = %q", cost.Database.Name))
	}
}

// TestAgainstAnotherComputation compares the page's sums with a bill that is written anew: what
// happens in a second, an hour and a month, and Google's prices as numbers.
func TestAgainstAnotherComputation(t *testing.T) {
	t.Parallel()
	message := must.Get(messageBytes())(t)
	visit, untouched := pageRequests()
	hourly := 30*visit + 2.4*untouched
	above := func(used, free, price float64) float64 { return math.Max(used-free, 0) * price }
	const second, gibibyte = 730 * 60 * 60, 1 << 30
	for _, c := range []struct {
		nodes             int
		small             bool
		vCPU, ram, copies float64
		ingests           float64 // instances
	}{
		{nodes: 10, small: true, copies: 1, ingests: 1},
		{nodes: 10, vCPU: 1, ram: 3.75, copies: 1, ingests: 1},
		{nodes: 100, vCPU: 1, ram: 3.75, copies: 1, ingests: 1},
		{nodes: 1000, vCPU: 1, ram: 3.75, copies: 1, ingests: 1},
		{nodes: 20_000, vCPU: 4, ram: 15, copies: 2, ingests: 1},
		{nodes: 100_000, vCPU: 16, ram: 60, copies: 2, ingests: 4},
	} {
		nodes := float64(c.nodes)
		readings := nodes * 2 * 60 * 730
		// Each second a reading has a chance to come to an instance that is free.
		share := func(perSecond float64) float64 { return 1 - math.Pow(math.E, -perSecond/10) }
		byRequest := 2*share(nodes/30)*c.ingests*second + share(nodes/30_000)*second
		request := above(byRequest, 180e3, 24e-6) + above(byRequest/2, 360e3, 2.5e-6) + above(readings*2.001, 2e6, .4e-6)
		alerting := share(nodes/30_000) * second
		instance := above(2*c.ingests*second, 240e3, 18e-6) + above(c.ingests*second, 450e3, 2e-6) +
			above(alerting, 180e3, 24e-6) + above(alerting/2, 360e3, 2.5e-6) + above(readings/1000, 2e6, .4e-6)
		dashboards := math.Ceil(nodes / 50)
		asked := dashboards * 8 * 730 / 24 * (240 + hourly)
		busy := share(asked/(8*730/24*3600)) * math.Ceil(asked/(8*730/24*3600)/100) * 8 * 730 / 24 * 3600
		api := (busy+262_800*.1)*(24e-6+1.25e-6) + (asked+262_800)*.4e-6
		if !c.small {
			api += (second - 26_280) * 1.5 * 2.5e-6
		}
		days := 730.0 / 24
		data := (readings/days*9*207 + nodes*730*12*200) / gibibyte
		database := 730 * c.copies * (c.vCPU*.0413 + c.ram*.007)
		if c.small {
			database = 730 * .0105
		}
		database += math.Max(10, data)*.17*c.copies + data*2*.08
		stored := readings * 48 / gibibyte
		bigquery := math.Max(0, stored*3*.02+stored*9*.01-.2) + above(stored, 2048, .025)
		day := readings / days * 48
		chart := 2 * math.Max(10<<20, math.Min(day, 128<<20))
		bigquery += above(dashboards*8*days*30/2/100*chart, 1<<40, 6.25/(1<<40))
		published := readings*3*math.Max(message, 1000) + readings/1000*2*1000
		logs := above(((asked+262_800)*1000+2*c.ingests*730*60*800)/gibibyte, 50, .5)
		rest := asked*10*1024/gibibyte*.12 + 2.2 + 22*730*120*.35e-6 + .2 + .96
		want := above(published, 10*gibibyte, 40.0/(1<<40)) + math.Min(request, instance) + api + database + bigquery + logs + rest
		near(t, fmt.Sprintf("%d nodes, small %t", c.nodes, c.small), compute(c.nodes, c.small, message).Total, want)
	}
}
