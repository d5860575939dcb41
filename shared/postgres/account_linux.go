package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// account is the user that the server runs as: PostgreSQL refuses to run as root.
type account struct {
	credential *syscall.Credential // nil for our own
	// capabilities let the server reach its folder inside folders that it may not traverse,
	// such as root's home.
	capabilities []uintptr
}

func serverAccount(dir string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		entry, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(entry.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(entry.Gid, 10, 32)
		if uidErr != nil || gidErr != nil {
			continue
		}
		found := account{credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if hasClosedParent(dir) {
			found.capabilities, err = traversalCapability(dir)
		}
		return found, err
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// hasClosedParent reports whether a folder above dir may not be traversed by other
// users.
func hasClosedParent(dir string) bool {
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return true
		}
		if parent == filepath.Dir(parent) {
			return false
		}
	}
}

// traversalCapability returns the least capability of this process that lets the
// server traverse closed folders. CAP_DAC_READ_SEARCH is less than
// CAP_DAC_OVERRIDE, but the root of a container often lacks it.
func traversalCapability(dir string) ([]uintptr, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	for _, capability := range []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_OVERRIDE} {
		if data[0].Permitted&(1<<capability) != 0 {
			return []uintptr{capability}, nil
		}
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and the user it runs as cannot reach %s: choose a folder that is open to all", dir)
}

// chown gives the folder and all in it to the account.
func (a account) chown(dir string) error {
	if a.credential == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("postgres folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, int(a.credential.Uid), int(a.credential.Gid))
	})
	if err != nil {
		return fmt.Errorf("postgres folder: %w", err)
	}
	return nil
}

// configure makes a command run as the account, in a process group of its own so
// that a Ctrl-C in the terminal reaches us first, and end with this process.
func (a account) configure(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT, Credential: a.credential, AmbientCaps: a.capabilities}
}
