package pubsubtest

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// emulators is the path of gcloud's emulator in the Cloud SDK.
const emulators = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"

// Emulator runs gcloud's emulator until the test ends and returns its address and a
// connection to it. Without an emulator, which Debian does not package, it skips the test.
func Emulator(tb testing.TB) (address string, connection *grpc.ClientConn) {
	tb.Helper()
	var jars []string
	for _, sdk := range []string{"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk"} {
		jars = append(jars, must.Get(filepath.Glob(filepath.Join(sdk, emulators)))(tb)...)
	}
	if len(jars) == 0 {
		tooltest.Skip(tb, "gcloud's Pub/Sub emulator is not installed (google-cloud-cli-pubsub-emulator of Google's own packages)")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		tooltest.Skip(tb, "gcloud's Pub/Sub emulator needs java, which is not installed")
	}
	port := strconv.Itoa(tooltest.FreePort(tb))
	// The test's context ends before its cleanups, which may still use it.
	emulator := exec.CommandContext(context.WithoutCancel(tb.Context()), java, "-jar", jars[0], "--host=127.0.0.1", "--port="+port) //nolint:gosec // the test's own
	must.Do(tb, emulator.Start())
	tb.Cleanup(func() {
		_ = emulator.Process.Kill()
		_ = emulator.Wait()
	})
	address = net.JoinHostPort("127.0.0.1", port)
	return address, connect(tb, address)
}

// connect returns a connection to an emulator that answers.
func connect(tb testing.TB, address string) *grpc.ClientConn {
	tb.Helper()
	connection := must.Get(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1, MaxDelay: 100 * time.Millisecond}})))(tb)
	tb.Cleanup(func() { _ = connection.Close() })
	ready, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	connection.Connect()
	for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
		if !connection.WaitForStateChange(ready, state) {
			tb.Fatal("the emulator does not answer")
		}
		connection.Connect()
	}
	return connection
}
