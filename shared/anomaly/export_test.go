package anomaly

// Monthly is the size of a node's statistic that comes once a month at an hour of the day.
func (c *Calibration) Monthly(node, room string, hour int, s Statistic) float64 {
	return c.exceeded(c.of(node, room), hour, s, 1)
}

// Tail is the tail of pooled numbers, of which few count less than the shipped tail.
func Tail(values []float64, ranks [12]float64, excess float64) ([12]float64, float64) {
	t := tailOf(values, tail{ranks, excess})
	return t.Ranks, t.Excess
}
