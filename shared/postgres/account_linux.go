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
)

// account is whom the server runs as: PostgreSQL refuses to run as root.
type account struct {
	credential *syscall.Credential // nil for our own
	// search lets the server reach its folder below folders that are closed to
	// it, such as root's home.
	search bool
}

// capabilityReadSearch is CAP_DAC_READ_SEARCH: to pass closed folders, and to
// read, but not to write, what belongs to others.
const capabilityReadSearch = 2

func unprivileged(dir string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			continue
		}
		return account{
			credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
			search:     closed(dir),
		}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// closed reports whether a folder above dir lets strangers pass.
func closed(dir string) bool {
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

// own gives the folder and all in it to the account.
func (a account) own(dir string) error {
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

// apply makes a command run as the account, in a process group of its own so
// that a Ctrl-C in the terminal reaches us first, and end with this process.
func (a account) apply(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT, Credential: a.credential}
	if a.search {
		command.SysProcAttr.AmbientCaps = []uintptr{capabilityReadSearch}
	}
}
