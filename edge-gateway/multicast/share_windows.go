package multicast

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/windows"
)

// SharePort lets others of the machine have port 5353 too, as the Control of a
// [net.ListenConfig].
func SharePort(_, _ string, raw syscall.RawConn) error {
	var fault error
	err := raw.Control(func(fd uintptr) {
		fault = windows.SetsockoptInt(windows.Handle(fd), windows.SOL_SOCKET, windows.SO_REUSEADDR, 1)
	})
	if err := errors.Join(err, fault); err != nil {
		return fmt.Errorf("share the port: %w", err)
	}
	return nil
}

// physical cannot be told here: the system's own order stays.
func physical(string) bool { return true }
