// Package portable has the logarithm and the exponential that give the same bits on every machine. Those
// of package math do not: processors with a fused multiply-add round less often. What
// is learned with it, and what is kept of it, has the same bytes wherever it is made.
package portable

import "math"

// Log is the natural logarithm of a positive number, to 1 in 10¹⁵; -Inf for 0, NaN
// below.
//
// It is 2·atanh((m-1)/(m+1)) of the mantissa m, between √½ and √2, by its series:
// eleven terms leave out less than 10⁻¹⁷.
func Log(x float64) float64 {
	switch {
	case x == 0:
		return math.Inf(-1)
	case !(x > 0):
		return math.NaN()
	case math.IsInf(x, 1):
		return x
	}
	m, exponent := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		exponent--
	}
	s := (m - 1) / (m + 1)
	square := float64(s * s)
	sum := 0.0
	for n := 21; n >= 1; n -= 2 {
		sum = 1/float64(n) + float64(square*sum)
	}
	return float64(2*s*sum) + float64(float64(exponent)*math.Ln2)
}

// Log1p is the logarithm of 1 + x. It is no more exact for a small x than that sum.
func Log1p(x float64) float64 { return Log(1 + x) }

// ln2High is the upper half of ln 2: its product with a small whole number is exact.
const ln2High = 0x1.62e42fep-1

// Exp is e to the power of x, to 1 in 10¹⁵.
//
// x is k·ln 2 and a rest of at most ½·ln 2, of which thirteen terms of the series leave
// out less than 10⁻¹⁷. They are added up by fours (Estrin), since each sum waits for those
// in it.
func Exp(x float64) float64 {
	const most = 709.7 // beyond, nothing is finite; below its negative all is nearly 0
	switch {
	case math.IsNaN(x):
		return x
	case x > most:
		return math.Inf(1)
	case x < -most:
		return 0
	}
	k := math.Round(x / math.Ln2)
	rest := (x - float64(k*ln2High)) - float64(k*(math.Ln2-ln2High))
	square := float64(rest * rest)
	fourth := float64(square * square)
	low := line(line(1.0/2, 1.0/6, rest), line(1.0/24, 1.0/120, rest), square)
	middle := line(line(1.0/720, 1.0/5040, rest), line(1.0/40320, 1.0/362880, rest), square)
	high := line(line(1.0/3628800, 1.0/39916800, rest), line(1.0/479001600, 1.0/6227020800, rest), square)
	return math.Ldexp(1+line(rest, line(low, line(middle, high, fourth), fourth), square), int(k))
}

func line(constant, slope, x float64) float64 { return constant + float64(slope*x) }
