package learn

import (
	"math"
)

// opinion is a detector's judgement of a reading that a person has judged.
type opinion struct {
	said, truth bool
	weight      float64
}

// opinions returns a detector's judgements of readings.
func opinions(d *Detector, judged []Labelled) []opinion {
	all := make([]opinion, 0, len(judged))
	for _, each := range judged {
		all = append(all, opinion{said: d.Detect(each.Window, each.Reading).Anomalous(), truth: each.Anomalous, weight: each.Weight})
	}
	return all
}

// lostBeyondChance reports whether the new opinions of the same readings are worse than the old
// ones by more than chance, at a level of one in 20: McNemar's test with the continuity
// correction. It takes at least five readings lost and none won.
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

// confusion counts readings by the detector's judgement and the truth.
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

// f1 is nil where there is no anomaly to find: then it means nothing.
func (c confusion) f1() *float64 {
	if c.truePositive+c.falseNegative == 0 {
		return nil
	}
	return share(2*c.truePositive, 2*c.truePositive+c.falsePositive+c.falseNegative)
}

// accuracy is the share of right judgements; nil if there are none.
func (c confusion) accuracy() *float64 {
	right := c.truePositive + c.trueNegative
	return share(right, right+c.falsePositive+c.falseNegative)
}

// share is a part of a whole; nil if the whole is zero.
func share(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}
