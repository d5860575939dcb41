// Package release holds the scripts by which cloudbuild.yaml releases the system, and
// plays releases with them: steps in order with the programs of their images, against
// a cloud of the test's own.
package release
