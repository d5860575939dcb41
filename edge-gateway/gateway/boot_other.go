//go:build !linux

package gateway

import (
	"crypto/rand"
	"time"
)

// thisBoot stands for this run of the program, since the system's own is not asked.
func thisBoot() boot {
	started := time.Now()
	found := boot{uptime: func() time.Duration { return time.Since(started) }}
	_, _ = rand.Read(found.id[:]) // never fails
	return found
}
