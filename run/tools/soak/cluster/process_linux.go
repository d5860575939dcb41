package cluster

import (
	"os/exec"
	"syscall"
)

// endWithParent has the process killed when we end without having done so.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
