package processtest

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the process when its parent dies.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
