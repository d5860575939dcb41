package gateway

import (
	"encoding/hex"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// thisBoot asks Linux: /proc/sys/kernel/random/boot_id is another one after each boot
// (random(4)), and CLOCK_BOOTTIME goes on while the machine is suspended
// (clock_gettime(2)).
func thisBoot() boot {
	found := boot{uptime: func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // fails for unknown clocks only
		return time.Duration(now.Nano())
	}}
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")); err == nil {
		copy(found.id[:], id)
	}
	return found
}
