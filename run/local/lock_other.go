//go:build !unix

package main

// lock does nothing where there is no flock; PostgreSQL's own lock then keeps a
// second system off the data, with a less helpful message.
func lock(string) (unlock func(), err error) { return func() {}, nil }
