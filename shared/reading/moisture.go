package reading

import "math"

// The constants of the Magnus formula over water, for which Sonntag (1990,
// Zeitschrift für Meteorologie 70) gives less than 0.3 % error from -45 to
// 60 °C; the World Meteorological Organization recommends them in its Guide to
// Instruments (WMO-No. 8, annex 4.B).
const (
	magnusPressure = 6.112  // hPa, saturation at 0 °C
	magnusSlope    = 17.62  // dimensionless
	magnusOffset   = 243.12 // °C

	// vapourFactor turns hPa/K into g/m³: the inverse of the specific gas
	// constant of water vapour, 461.5 J/(kg K).
	vapourFactor = 216.7
	kelvin       = 273.15 // 0 °C in K
)

// AbsoluteHumidity is the mass of water vapour in the air, g/m³, at a
// temperature in °C and a relative humidity in %. Unlike relative humidity it
// stays the same when air is only heated or cooled.
func AbsoluteHumidity(temperature, humidity float64) float64 {
	saturation := magnusPressure * math.Exp(magnusSlope*temperature/(magnusOffset+temperature))
	return vapourFactor * humidity / 100 * saturation / (kelvin + temperature)
}

// driest is the lowest relative humidity, in %, that [DewPoint] uses: perfectly dry air has
// no dew point, and the hardware's sensors cannot measure less.
const driest = 0.1

// DewPoint is the temperature in °C to which air of a temperature in °C and a
// relative humidity in % must cool for its water to condense. Below [driest] it is the dew
// point at [driest].
func DewPoint(temperature, humidity float64) float64 {
	exponent := math.Log(max(humidity, driest)/100) + magnusSlope*temperature/(magnusOffset+temperature)
	return magnusOffset * exponent / (magnusSlope - exponent)
}

// RelativeHumidity is the relative humidity, in %, of air with a temperature and a dew point in
// °C: the inverse of [DewPoint].
func RelativeHumidity(temperature, dewPoint float64) float64 {
	return 100 * math.Exp(magnusSlope*dewPoint/(magnusOffset+dewPoint)-magnusSlope*temperature/(magnusOffset+temperature))
}
