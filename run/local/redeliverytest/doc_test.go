// Package redeliverytest tests that redelivery loses and duplicates nothing: all
// functions as processes that are killed, a real database and the queue. Outages of
// hours are tried with the functions in one process and a fake clock. The full run of
// killed processes, 100,000 readings into each backend, is
//
//	REDELIVERY_READINGS=100000 go test -timeout 60m ./run/local/redeliverytest
//
// Without the variable 600 readings are sent, with all other tests.
package redeliverytest
