package learn

import (
	"slices"

	"coldaisle.dev/shared/features"
)

const (
	// contamination is the share of readings taken for anomalies before anybody
	// has said so.
	contamination = 0.05
	// minVerdicts is how many verdicts of each kind it takes to move the threshold.
	minVerdicts = 10
	// trust is the number of anomalies among the verdicts that moves the threshold
	// half of the way from contamination's to the one that the verdicts ask for.
	trust = 10.0
	// The threshold stays between these shares of the training's scores, whatever
	// people say: neither every tenth reading nor none at all is an anomaly.
	minQuantile, maxQuantile = 0.90, 0.999
)

// scoredLabel is a judged reading as a detector sees it.
type scoredLabel struct {
	score float64
	rule  bool // an anomaly by a rule, whatever the score
	truth bool
}

// scoreLabels judges readings by a detector.
func scoreLabels(d *Detector, judged []Labelled) []scoredLabel {
	var x features.Extractor
	verdicts := make([]scoredLabel, 0, len(judged))
	for _, each := range judged {
		j := d.Detect(&x, each.Window, each.Reading)
		verdicts = append(verdicts, scoredLabel{
			score: j.Score, rule: j.ByRule(), truth: each.Anomalous,
		})
	}
	return verdicts
}

// calibrate moves the threshold towards the one with the greatest F1 on the
// verdicts. Each verdict counts once: a wrong one of a sampled normal reading once had the
// weight of 200. How far it moves depends on the number of anomalies among them (trust); minQuantile and maxQuantile bound
// it. It reports whether there were enough verdicts.
func (d *Detector) calibrate(scores []float64, verdicts []scoredLabel) bool {
	positives, negatives := 0, 0
	for _, v := range verdicts {
		if v.truth {
			positives++
		} else {
			negatives++
		}
	}
	if positives < minVerdicts || negatives < minVerdicts {
		return false
	}
	start := d.Threshold
	ordered := slices.Clone(verdicts)
	slices.SortStableFunc(ordered, func(a, b scoredLabel) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		default:
			return 0
		}
	})
	best, bestF1 := start, countConfusion(verdicts, start).f1()
	for i := 1; i < len(ordered); i++ {
		between := (ordered[i-1].score + ordered[i].score) / 2
		if f1 := countConfusion(verdicts, between).f1(); f1 > bestF1 {
			best, bestF1 = between, f1
		}
	}
	best = start + (best-start)*float64(positives)/(float64(positives)+trust)
	d.Threshold = min(max(best, quantile(scores, minQuantile)), quantile(scores, maxQuantile))
	return true
}

// confusion are readings by what was said of them and what they were.
type confusion struct{ truePositive, falsePositive, falseNegative, trueNegative float64 }

// countConfusion compares verdicts with what a threshold says.
func countConfusion(verdicts []scoredLabel, threshold float64) confusion {
	var c confusion
	for _, v := range verdicts {
		switch said := v.rule || v.score > threshold; {
		case said && v.truth:
			c.truePositive++
		case said:
			c.falsePositive++
		case v.truth:
			c.falseNegative++
		default:
			c.trueNegative++
		}
	}
	return c
}

func (c confusion) f1() float64 {
	if c.truePositive == 0 {
		return 0
	}
	return 2 * c.truePositive / (2*c.truePositive + c.falsePositive + c.falseNegative)
}

// accuracy is the share of right judgements, nil of none.
func (c confusion) accuracy() *float64 {
	right := c.truePositive + c.trueNegative
	return share(right, right+c.falsePositive+c.falseNegative)
}

// measured tells whether there is anything to find at all, so that F1 means
// something.
func (c confusion) measured() bool { return c.truePositive+c.falseNegative > 0 }

// share is a part of a whole, nil of nothing.
func share(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}
