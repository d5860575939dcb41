package clock

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// Boot is one run of the machine. Its uptime goes on while the machine is suspended,
// whatever the system clock does.
type Boot struct {
	ID     [16]byte // differs after each boot
	Uptime func() time.Duration
}

// bootID parses the id of a boot; an invalid one is replaced by a random id of this process.
func bootID(text string) (id [16]byte) {
	if decoded, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), "-", "")); err == nil && len(decoded) == len(id) {
		copy(id[:], decoded)
		return id
	}
	_, _ = rand.Read(id[:]) // never fails
	return id
}
