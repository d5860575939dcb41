//go:build !linux

package main

import "errors"

var errNoMount = errors.New("only on Linux")

func mount(string, int) error { return errNoMount }
func unmount(string) error    { return errNoMount }
func isFull(err error) bool   { return err != nil }
