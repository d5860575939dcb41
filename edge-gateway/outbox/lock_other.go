//go:build !unix

package outbox

// lock does nothing where there is no flock. The port that the gateway listens
// on keeps a second one away there.
func lock(string) (unlock func() error, err error) {
	return func() error { return nil }, nil
}
