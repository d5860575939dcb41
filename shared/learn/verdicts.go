package learn

import "coldaisle.dev/shared/features"

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
