package multicast

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// SharePort lets others of the machine have port 5353 too, as the Control of a
// [net.ListenConfig]. Not by SO_REUSEPORT:
// Linux would then give each unicast packet to one of the sharers at random.
//
// The socket hears only the groups that it has joined itself. Linux would give it
// those that any other socket of the machine has joined, too.
func SharePort(network, _ string, raw syscall.RawConn) error {
	var fault error
	err := raw.Control(func(fd uintptr) {
		fault = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		// Linux before 4.20 has the second not; receivers look at the interface, too.
		if network == "udp6" {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0)
		} else {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
		}
	})
	if err == nil {
		err = fault
	}
	if err != nil {
		return fmt.Errorf("share the port: %w", err)
	}
	return nil
}

// physical reports whether an interface is of hardware: its driver's device says so.
func physical(name string) bool {
	_, err := os.Stat(filepath.Join("/sys/class/net", name, "device"))
	return err == nil
}
