//go:build !linux

package postgres

import "os/exec"

// account is whom the server runs as; outside Linux always ourselves.
type account struct{}

func serverAccount(string) (account, error) { return account{}, nil }

func (account) chown(string) error { return nil }

func (account) configure(*exec.Cmd) {}
