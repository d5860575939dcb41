package learn

import (
	"math"

	"coldaisle.dev/shared/features"
)

// opinion is a detector's judgement of a reading that a person has judged.
type opinion struct {
	said, truth bool
	weight      float64
}

// opinions judges readings by a detector.
func opinions(d *Detector, judged []Labelled) []opinion {
	var x features.Extractor
	all := make([]opinion, 0, len(judged))
	for _, each := range judged {
		all = append(all, opinion{said: d.Detect(&x, each.Window, each.Reading).Anomalous(), truth: each.Anomalous, weight: each.Weight})
	}
	return all
}

// lostBeyondChance reports whether the new opinions of the same readings are wrong where the
// old ones are right so much more often than the other way round that chance would do it less
// than once in 20: McNemar's test with the correction for few. Five lost and none won are
// the fewest.
func lostBeyondChance(before, after []opinion) bool {
	const oneInTwenty = 1.645 // standard deviations
	lost, won := 0, 0
	for i, is := range after {
		switch was := before[i]; {
		case is.said == was.said:
		case was.said == was.truth:
			lost++
		default:
			won++
		}
	}
	return float64(lost-won-1) > oneInTwenty*math.Sqrt(float64(lost+won))
}

// confusion counts readings by what was said of them and what they were.
type confusion struct{ truePositive, falsePositive, falseNegative, trueNegative float64 }

func countConfusion(all []opinion) confusion {
	var c confusion
	for _, o := range all {
		switch {
		case o.said && o.truth:
			c.truePositive += o.weight
		case o.said:
			c.falsePositive += o.weight
		case o.truth:
			c.falseNegative += o.weight
		default:
			c.trueNegative += o.weight
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

// measured reports whether there is any anomaly to find: F1 means nothing without.
func (c confusion) measured() bool { return c.truePositive+c.falseNegative > 0 }

// share is a part of a whole, nil of nothing.
func share(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}
