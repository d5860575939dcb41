// Package netnstest has no code but tests: the gateway's program on a network of
// its own, made of Linux network namespaces, where each of the ways in which
// nodes, laptops and Google's own devices ask for a host must find it.
package netnstest
