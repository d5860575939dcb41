package learn_test

import (
	"testing"

	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// constant is a window in which nothing changes: 20 °C and 40 %.
func constant(n int) reading.Window {
	var w reading.Window
	for i := range n {
		w.Age = append(w.Age, float64(30*(n-i)))
		w.Temperature, w.Humidity = append(w.Temperature, 20), append(w.Humidity, 40)
	}
	return w
}

func TestRules(t *testing.T) {
	t.Parallel()
	lively := constant(100)
	for i := range 60 {
		lively.Temperature[i] += float64(i%5) / 10
	}
	habit := constant(100) // repeats itself often, by twelves
	for i := range habit.Temperature {
		habit.Temperature[i] = 20 + float64(i/12%2)/10
	}
	// repeated holds other values for so many readings, then something else, then 20 °C and 40 %.
	repeated := func(before, now int) reading.Window {
		w := constant(before + 1 + now)
		for i := range before {
			w.Temperature[i], w.Humidity[i] = 21, 41
		}
		w.Temperature[before], w.Humidity[before] = 22, 42
		return w
	}
	for name, c := range map[string]struct {
		window                reading.Window
		temperature, humidity float64
		want                  learn.Reason
	}{
		"ordinary":                   {lively, 20.3, 41, learn.Normal},
		"no window":                  {reading.Window{}, 20, 40, learn.Normal},
		"above the sensor's range":   {lively, 80.1, 40, learn.OutOfRange},
		"at its lower end":           {lively, -40, 40, learn.OutOfRange},
		"saturated":                  {lively, 20, 100, learn.OutOfRange},
		"dry as nothing":             {reading.Window{}, 20, 0, learn.OutOfRange},
		"stuck after a lively time":  {lively, 20, 40, learn.Stuck},
		"only one value stuck":       {lively, 20, 40.5, learn.Normal},
		"stuck for as long as known": {constant(60), 20, 40, learn.Stuck},
		"quiet for half an hour":     {constant(59), 20, 40, learn.Normal},
		"quiet by habit":             {habit, 20, 40, learn.Normal},
		"repeated 20 times":          {repeated(1, 20), 20, 40, learn.Stuck},
		"repeated 19 times":          {repeated(1, 19), 20, 40, learn.Normal},
		"four times as long":         {repeated(7, 24), 20, 40, learn.Stuck}, // seven readings repeat one six times
		"less than four times":       {repeated(7, 23), 20, 40, learn.Normal},
		"at the upper end":           {lively, 80, 41, learn.Normal},
	} {
		r := reading.Reading{NodeID: "n", MessageID: "m", Time: noon(), Temperature: c.temperature, Humidity: c.humidity}
		must.Equal(t, name, c.want, (*learn.Detector)(nil).Detect(c.window, r).Reason)
	}
}
