// Package release holds cloudbuild.yaml, which releases the system, to what it
// names, and tries the smoke test that it ends with: nothing but tests.
package release
