//go:build unix

package keep

import (
	"os"
	"syscall"
)

// giveToOwner gives a file to the owner of a folder, which only root can and need do.
func giveToOwner(path, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err //nolint:wrapcheck // File does
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid)) //nolint:wrapcheck // File does
}
