// Package modeltest runs the whole system against a small truth.
//
// A script is a list of commands, one a line: somebody registers, creates a sensor, a node
// sends a reading, a message is delivered, twice or late, time passes, an incident is taken.
// [world] executes it on the gateway, the functions and the API, in one process over a real
// PostgreSQL, with the queue and every clock, the database's included, under the test's hand.
// [model] executes it on a few slices and maps that a person can read, and shares no
// code with what it judges. After every command the answers of the API are those of the model.
//
// Scripts are drawn at random. One that fails is made short, and becomes a named test here.
package modeltest
