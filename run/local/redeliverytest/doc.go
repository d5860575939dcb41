// Package redeliverytest holds the fault suite of the pipeline: nothing but tests, of
// all consumers together, over real processes, a real database and the push
// bridge. The whole of it, 100,000 readings into each table, is
//
//	FAULT_READINGS=100000 go test -timeout 60m ./run/local/redeliverytest
//
// Without the variable a slice of it runs with all other tests.
package redeliverytest
