package learn

import "math"

// judgements are what a detector says of readings that people judged: whether each is an anomaly.
func judgements(d *Detector, judged []Labelled) []bool {
	said := make([]bool, len(judged))
	for i, l := range judged {
		said[i] = d.Detect(l.Window, l.Reading).Anomalous()
	}
	return said
}

// lostBeyondChance reports whether the judgements after are worse than those before by more than
// chance, at a level of one in 20: McNemar's test with the continuity correction. It takes at least
// five readings lost and none won.
func lostBeyondChance(judged []Labelled, before, after []bool) bool {
	const oneInTwenty = 1.645 // standard deviations
	lost, won := 0, 0
	for i, l := range judged {
		switch {
		case before[i] == after[i]:
		case before[i] == l.Anomalous:
			lost++
		default:
			won++
		}
	}
	return float64(lost-won-1) > oneInTwenty*math.Sqrt(float64(lost+won))
}

// confusion weighs readings by the detector's judgement and the truth.
type confusion struct{ truePositive, falsePositive, falseNegative, trueNegative float64 }

func countConfusion(judged []Labelled, said []bool) (c confusion) {
	for i, l := range judged {
		switch {
		case said[i] && l.Anomalous:
			c.truePositive += l.Weight
		case said[i]:
			c.falsePositive += l.Weight
		case l.Anomalous:
			c.falseNegative += l.Weight
		default:
			c.trueNegative += l.Weight
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
