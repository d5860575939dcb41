package main

import (
	"errors"
	"fmt"
	"syscall"
)

func mount(dir string, size int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}

func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }
