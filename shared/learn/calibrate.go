package learn

import (
	"slices"

	"coldaisle.dev/shared/features"
)

const (
	// contamination is the share of readings taken for anomalies before anybody
	// has said so.
	contamination = 0.05
	// fewest verdicts of each kind that move the threshold.
	fewest = 10
	// trust is how many anomalies it takes to go half of the way from the
	// contamination's threshold to that of the verdicts.
	trust = 10.0
	// The threshold stays between these shares of the training's scores, whatever
	// people say: neither every tenth reading nor none at all is an anomaly.
	leastShare, mostShare = 0.90, 0.999
)

// verdict is a judged reading as a detector sees it.
type verdict struct {
	score  float64
	rule   bool // an anomaly by a rule, whatever the score
	truth  bool
	weight float64
}

// seenBy judges readings by a detector.
func seenBy(d *Detector, judged []Judged) []verdict {
	var x features.Extractor
	verdicts := make([]verdict, 0, len(judged))
	for _, each := range judged {
		j := d.Judge(&x, each.Window, each.Reading)
		verdicts = append(verdicts, verdict{
			score: j.Score, rule: j.ByRule(), truth: each.Anomalous, weight: each.Weight,
		})
	}
	return verdicts
}

// calibrate moves the threshold to where it agrees best with the verdicts: the
// greatest F1, each verdict counted for as many readings as it stands for. It
// goes there by as much as there are anomalies to trust, and no farther than
// the bounds. It reports whether there were enough.
func (d *Detector) calibrate(scores []float64, verdicts []verdict) bool {
	positives, negatives := 0, 0
	for _, v := range verdicts {
		if v.truth {
			positives++
		} else {
			negatives++
		}
	}
	if positives < fewest || negatives < fewest {
		return false
	}
	start := d.Threshold
	ordered := slices.Clone(verdicts)
	slices.SortStableFunc(ordered, func(a, b verdict) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		default:
			return 0
		}
	})
	best, bestF1 := start, agreement(verdicts, start).f1()
	for i := 1; i < len(ordered); i++ {
		between := (ordered[i-1].score + ordered[i].score) / 2
		if f1 := agreement(verdicts, between).f1(); f1 > bestF1 {
			best, bestF1 = between, f1
		}
	}
	best = start + (best-start)*float64(positives)/(float64(positives)+trust)
	d.Threshold = min(max(best, quantile(scores, leastShare)), quantile(scores, mostShare))
	return true
}

// counts are readings by what was said of them and what they were.
type counts struct{ truePositive, falsePositive, falseNegative, trueNegative float64 }

// agreement compares verdicts with what a threshold says.
func agreement(verdicts []verdict, threshold float64) counts {
	var c counts
	for _, v := range verdicts {
		switch said := v.rule || v.score > threshold; {
		case said && v.truth:
			c.truePositive += v.weight
		case said:
			c.falsePositive += v.weight
		case v.truth:
			c.falseNegative += v.weight
		default:
			c.trueNegative += v.weight
		}
	}
	return c
}

func (c counts) f1() float64 {
	if c.truePositive == 0 {
		return 0
	}
	return 2 * c.truePositive / (2*c.truePositive + c.falsePositive + c.falseNegative)
}

// accuracy is the share of right judgements, nil of none.
func (c counts) accuracy() *float64 {
	right := c.truePositive + c.trueNegative
	return share(right, right+c.falsePositive+c.falseNegative)
}

// measured tells whether there is anything to find at all, so that F1 means
// something.
func (c counts) measured() bool { return c.truePositive+c.falseNegative > 0 }

// share is a part of a whole, nil of nothing.
func share(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}
