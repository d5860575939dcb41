package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/run/tools/ml/trial"
	"coldaisle.dev/shared/anomaly"
)

// sowing are the options of a measure on recorded readings with sown faults.
type sowing struct {
	seed  uint64
	part  string
	past  int  // days of past, on which nothing is sown
	alone bool // nodes have no room and no neighbours
	slow  bool // kinds that take days, else those that take hours
	each  int  // of a kind and group
	ramps bool // ramps to a limit instead
}

// measure measures what production's path finds of faults that are sown on recorded readings.
func (s sowing) measure(tracks []trial.Track, out io.Writer) error {
	part := trial.Part(s.part)
	if part != trial.Tuning && part != trial.Held {
		return fmt.Errorf("-part %s: say tuning or held", s.part)
	}
	tracks = part.Of(tracks)
	if len(tracks) == 0 {
		return fmt.Errorf("no readings in the part %s", s.part)
	}
	begin, end := trial.Span(tracks)
	plan := trial.Sowing{Seed: s.seed, Each: s.each, Gap: 3 * time.Hour, From: begin.Truncate(day).Add(time.Duration(s.past) * day)}
	if s.ramps {
		ramps(tracks, s.seed, plan.From, out)
		return nil
	}
	for _, kind := range fault.Sown() {
		if slow := slices.Contains([]fault.Kind{fault.Slow, fault.Nightly, fault.Drift}, kind); slow == s.slow {
			plan.Kinds = append(plan.Kinds, kind)
		}
	}
	options := trial.Options{Single: s.alone, Frozen: plan.From}
	if end.Sub(plan.From) > 7*day { // as in production; else the few days of a file stay a past of so many
		options.Frozen = time.Time{}
	}
	if s.slow {
		plan.Gap = 8 * day
	}
	sown, events := plan.Sow(tracks)
	scores, _ := trial.Replay(sown, options)
	_, _ = fmt.Fprintf(out, "\nsown with seed %d on the %s part, %d nodes, after %d days of past\n", s.seed, part, len(tracks), s.past)
	_, _ = fmt.Fprint(out, "| | events | caught at budget 1 | median delay, min | reason right | caught at budgets 4, 8 | "+
		"left their own range by 1 °C, and told by then |\n|---|---|---|---|---|---|---|\n")
	budgets := []float64{1, 4, 8}
	found := make([]trial.Found, len(budgets))
	for i, budget := range budgets {
		found[i] = trial.Compare(sown, events, scores, anomaly.Alarm(budget), plan.From)
		found[i].Tallies = append(found[i].Tallies, found[i].All)
	}
	rate := trial.RateOfChange(sown)
	simple := trial.Compare(sown, events, rate, trial.Learned(sown, rate, 1, plan.From), plan.From)
	for i, t := range found[0].Tallies {
		delay := "-"
		if t.Caught > 0 {
			delay = fmt.Sprintf("%.0f", t.Delay().Minutes())
		}
		lost := ""
		if t.Lost > 0 {
			lost = fmt.Sprintf("%d, %.2f", t.Lost, share(t.InTime, t.Lost))
		}
		_, _ = fmt.Fprintf(out, "| %s | %d | %.2f | %s | %.2f | %.2f, %.2f | %s |\n", t.Name, t.Events,
			t.Share(), delay, share(t.Right, t.Caught), found[1].Tallies[i].Share(), found[2].Tallies[i].Share(), lost)
	}
	if s.slow {
		_, _ = fmt.Fprintf(out, "of all within three days: %.2f\n", found[0].All.Within(3*day))
	}
	_, _ = fmt.Fprintf(out, "all by the rate of change against the last 24 h: %.2f caught, %.2f false a node-month\n",
		simple.All.Share(), float64(simple.False)/simple.Months)
	for i, f := range found {
		low, high := poisson(f.False)
		_, _ = fmt.Fprintf(out, "false incidents at budget %g: %d in %.2f node-months, %.2f each (95 %%: %.2f to %.2f)\n",
			budgets[i], f.False, f.Months, float64(f.False)/f.Months, low/f.Months, high/f.Months)
	}
	return nil
}

// ramps measures what is told of ramps before they pass a limit.
func ramps(tracks []trial.Track, seed uint64, from time.Time, out io.Writer) {
	rates := trial.RampRates()
	for i, r := range trial.Ramps(tracks, seed, from) {
		_, _ = fmt.Fprintf(out, "ramps of %g to %g °C/min: %.2f of %d told before the limit\n", rates[i], rates[i+1], share(r.Warned, r.Passed), r.Passed)
	}
	f := trial.Forecast(tracks, from)
	_, _ = fmt.Fprintf(out, "false warnings of a node in 30 days: %.2f; of a room and day: %.2f\n", f.False, f.FalseRooms)
}

func share(some, all int) float64 { return float64(some) / float64(max(1, all)) }

// poisson is the 95 % interval of a mean of which n were counted (Byar's approximation).
func poisson(n int) (low, high float64) {
	of := func(n, sign float64) float64 {
		if n == 0 {
			return 0
		}
		return n * math.Pow(1-1/(9*n)+sign*1.96/(3*math.Sqrt(n)), 3)
	}
	return of(float64(n), -1), of(float64(n+1), 1)
}
