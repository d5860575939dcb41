//go:build !linux

package postgres

import "os/exec"

// account is whom the server runs as; outside Linux always ourselves.
type account struct{}

func unprivileged(string) (account, error) { return account{}, nil }

func (account) own(string) error { return nil }

func (account) apply(*exec.Cmd) {}
