package anomaly

import (
	"iter"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/reading"
)

// Player plays the recorded readings of a node as detection hears them: for the daily
// calibration and for evaluation.
type Player struct {
	Live

	Readings []reading.Reading // oldest first
	Next     int               // place of the next one

	window func() (int, reading.Window, bool)
}

// NewPlayer returns a player, and a function that stops it.
func NewPlayer(readings []reading.Reading) (p Player, stop func()) {
	p.Readings = readings
	p.window, stop = iter.Pull2(features.Windows(readings))
	return p, stop
}

// Play hears the readings before a time. judge is called with each before it is heard.
func (p *Player) Play(until time.Time, judge func(w reading.Window, r reading.Reading)) {
	for ; p.Next < len(p.Readings) && p.Readings[p.Next].Time.Before(until); p.Next++ {
		_, w, _ := p.window()
		judge(w, p.Readings[p.Next])
		p.Hear(p.Readings[p.Next])
	}
}
