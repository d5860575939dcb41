package multicast

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// SharePort lets others of the machine have port 5353 too, as the Control of a
// [net.ListenConfig]. Not by SO_REUSEPORT:
// Linux would then give each unicast packet to one of the sharers at random.
func SharePort(_, _ string, raw syscall.RawConn) error {
	var fault error
	err := raw.Control(func(fd uintptr) {
		fault = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	if err == nil {
		err = fault
	}
	if err != nil {
		return fmt.Errorf("share the port: %w", err)
	}
	return nil
}
