package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// ThisBoot asks macOS: kern.bootsessionuuid differs after each boot, and
// CLOCK_MONOTONIC goes on while the machine sleeps (clock_gettime(3)).
func ThisBoot() Boot {
	text, _ := unix.Sysctl("kern.bootsessionuuid")
	return Boot{ID: bootID(text), Uptime: func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails for unknown clocks only
		return time.Duration(now.Nano())
	}}
}
