package gateway

import (
	"time"

	"coldaisle.dev/edge-gateway/outbox"
)

// boot is a run of the machine, by whose uptime the age of a reading is known whatever
// the clock does.
type boot struct {
	id     [16]byte
	uptime func() time.Duration
}

// age is how long ago a record's reading was taken; 0 when that was in another boot.
func (b boot) age(r outbox.Record) time.Duration {
	if r.Boot != b.id || r.Boot == ([16]byte{}) {
		return 0
	}
	return max(0, b.uptime()-r.Uptime)
}
