package clock

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Boot is one run of the machine. Its uptime goes on while the machine is suspended,
// whatever the system clock does.
type Boot struct {
	ID     [16]byte // differs after each boot
	Uptime func() time.Duration
}

// ThisBoot asks Linux for the id of its boot (random(4)); on macOS it is one of this process.
func ThisBoot() Boot {
	uptime := int32(unix.CLOCK_MONOTONIC) // goes on while macOS sleeps
	if runtime.GOOS == "linux" {
		uptime = 7 // CLOCK_BOOTTIME: goes on while Linux is suspended (clock_gettime(2))
	}
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return Boot{ID: bootID(string(text)), Uptime: func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(uptime, &now) // fails for unknown clocks only
		return time.Duration(now.Nano())
	}}
}

// processID replaces the id of a boot: the clock and the gateway, which ask each for itself, must
// get the same.
var processID = [16]byte([]byte(rand.Text())) //nolint:gochecknoglobals // never changed

// bootID parses the id of a boot; an invalid one is replaced by that of this process.
func bootID(text string) [16]byte {
	decoded, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), "-", ""))
	if err != nil || len(decoded) != len(processID) {
		return processID
	}
	return [16]byte(decoded)
}
