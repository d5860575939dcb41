package incident

import (
	"fmt"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
)

// Describe describes an excursion of the rule in words, for a list of excursions:
// "Temperature above 32.0 °C for 12 min, peak 35.1 °C".
func (r Rule) Describe(i Excursion) string {
	var text strings.Builder
	peak, limit := reading.Beyond(i.Peak, r.Limit)
	fmt.Fprintf(&text, "%s %s %s %s", r.Quantity.name(), r.Direction, limit, r.Quantity.unit())
	if lasted := i.End.Sub(i.Start); lasted > 0 {
		fmt.Fprintf(&text, " for %s", InWords(lasted))
	}
	extreme := "peak"
	if r.Direction == Below {
		extreme = "lowest"
	}
	fmt.Fprintf(&text, ", %s %s %s", extreme, peak, r.Quantity.unit())
	switch i.Reopened {
	case 0:
	case 1:
		text.WriteString(", came back once")
	default:
		fmt.Fprintf(&text, ", came back %d times", i.Reopened)
	}
	return text.String()
}

// DescribeDrill describes an alarm drill of the rule in words.
func (r Rule) DescribeDrill() string {
	return fmt.Sprintf("Only a drill: %s %s %s %s", r.Quantity.name(), r.Direction, reading.Decimal(r.Limit, 1), r.Quantity.unit())
}

// DescribeMissing describes that a node sends a quantity no more: "Humidity no longer measured,
// for 12 min".
func DescribeMissing(q Quantity, newest, end time.Time, lasting bool, now time.Time) string {
	if lasting {
		end = now
	}
	return fmt.Sprintf("%s no longer measured, for %s", q.name(), InWords(end.Sub(newest)))
}

func (q Quantity) name() string {
	return map[Quantity]string{Temperature: "Temperature", Humidity: "Humidity", DewPoint: "Dew point", TemperatureRate: "Temperature change"}[q]
}

func (q Quantity) unit() string {
	switch q {
	case Humidity:
		return "%"
	case TemperatureRate:
		return "°C/h"
	default:
		return "°C"
	}
}

// InWords formats a duration in seconds, in minutes, in hours and minutes, or in days and
// hours, depending on its length.
func InWords(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60), " 0 min")
	default:
		return strings.TrimSuffix(fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24), " 0 h")
	}
}
