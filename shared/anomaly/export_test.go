package anomaly

// Monthly is the size of a node's statistic that comes once a month.
func (c *Calibration) Monthly(node, room string, s Statistic) float64 {
	return c.monthly(c.of(node, room), s)
}
