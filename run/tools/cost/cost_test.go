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
	if math.Abs(got-want) > 0.01*math.Max(1, want) {
		t.Errorf("%s: %g, want about %g", what, got, want)
	}
}

// TestModel holds the formulas to figures worked out by hand.
func TestModel(t *testing.T) {
	t.Parallel()
	// A TiB and the free 10 GiB, three times a message of 1,000 bytes, and its alerts.
	near(t, "Pub/Sub", pubsub((tib+10*gib)/(3*1000+alertShare*2*1000), 1000), 40)
	if got := pubsub(1000, 2000); got != 0 {
		t.Errorf("Pub/Sub within the free tier: %g", got)
	}
	// Two functions busy all month, one idle: 2 × 2,628,000 s.
	near(t, "functions", functions(1000, 0), (2*2_628_000-180_000+2_628_000*(1-math.Exp(-0.1)))*0.000024+
		(2*2_628_000*0.5+2_628_000*(1-math.Exp(-0.1))*0.5-360_000)*0.0000025)
	near(t, "least scan", scannedBytes(1, 1)/mib, 10)
	near(t, "scan of a partition that is one block", scannedBytes(100*mib, 50)/mib, 100)
	near(t, "scan of one node of many blocks", scannedBytes(1000*block, 1)/block, 1)
	if message, err := messageBytes(); err != nil || message > 2.5*kib {
		t.Errorf("a message is %g bytes, %v", message, err)
	}
}

// TestIntervalsAreThoseOfTheCode holds the assumptions to the code that polls. The requests
// of pages are counted in the browser.
func TestIntervalsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	source := must.Get(os.ReadFile("../../dashboard/src/api/queries.ts"))(t)
	if line := fmt.Sprintf("export const refreshEvery = %g * second;", poll); !strings.Contains(string(source), line) {
		t.Errorf("the page does not say %s", line)
	}
}

// TestBudgetFollows holds the default of terraform's monthly_budget to the cost of 1,000
// nodes, to the next hundred.
func TestBudgetFollows(t *testing.T) {
	t.Parallel()
	cost := must.Get(compute(1000))(t)
	variables := must.Get(os.ReadFile("../../../terraform/variables.tf"))(t)
	_, budget, _ := strings.Cut(string(variables), `variable "monthly_budget" {`)
	if want := fmt.Sprintf("  default     = %g\n", 100*math.Ceil(cost.Total/100)); !strings.Contains(budget[:400], want) {
		t.Errorf("monthly_budget has no %q: %s", want, budget[:400])
	}
}
